"""What is installed on a cluster: built from a few settings, and the CRDs, generated from `trainwright.api`."""
