"""What pods need on this machine, and the kubelet that makes pods and processes agree."""
