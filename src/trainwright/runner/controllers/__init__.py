"""The JobSet and Job controllers: pure decisions, a module per policy, and the shell around them."""
