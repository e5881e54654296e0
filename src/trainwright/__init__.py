"""Distributed training jobs: one TrainJob, from a laptop to a cluster.

Importing this package loads nothing heavy: neither the operator nor a client of any cluster.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
