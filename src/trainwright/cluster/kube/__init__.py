"""The port over any Kubernetes API server: configuration, requests, transport, watch, informer."""
