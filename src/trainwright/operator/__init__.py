"""The process in the cluster: caches, workers, webhooks, probes and metrics around the one decision."""
