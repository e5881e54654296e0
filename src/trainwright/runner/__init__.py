"""Runs JobSets on one machine: a small JobSet and Job controller, executors, and the supervisor."""
