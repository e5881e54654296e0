"""The embedded store: the verbs of an API server over SQLite in the user's state directory."""
