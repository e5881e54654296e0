"""The port to whatever holds the objects, and its adapters: `local` (an embedded store), `kube` (to come)."""
