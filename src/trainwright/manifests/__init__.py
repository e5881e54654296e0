"""What is installed on a cluster, built from a few settings; CRDs are generated from `trainwright.api`."""
