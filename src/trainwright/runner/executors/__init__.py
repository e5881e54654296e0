"""What makes a pod run: processes on this machine."""
