"""Defaults and validation, one entry for each kind. Pure: whatever a rule needs is given to it.

Each function tells everything at once: errors by the field's path, and warnings.
"""

from trainwright.admission.runtimes import default_runtime, validate_runtime
from trainwright.admission.train_job_defaults import default_train_job
from trainwright.admission.train_jobs import validate_train_job
from trainwright.admission.verdict import Verdict

__all__ = ["Verdict", "default_runtime", "default_train_job", "validate_runtime", "validate_train_job"]
