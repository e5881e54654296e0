"""What is installed on a cluster, as YAML: the CRDs, generated from `trainwright.api`."""
