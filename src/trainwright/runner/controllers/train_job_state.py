"""What the runner asks a TrainJob: whether it has ended, rests, or is somebody else's."""

from __future__ import annotations

from trainwright.api.constants import CONTROLLER_NAME
from trainwright.api.meta import Json


def is_finished(train_job: Json) -> bool:
    """Say whether the TrainJob is Complete or Failed, which is for good."""
    conditions = (train_job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions)


def is_suspended(train_job: Json) -> bool:
    """Say whether the TrainJob should not run."""
    return bool((train_job.get("spec") or {}).get("suspend"))


def is_foreign(train_job: Json) -> bool:
    """Say whether another controller manages the TrainJob (case B032)."""
    return (train_job.get("spec") or {}).get("managedBy", CONTROLLER_NAME) not in {None, CONTROLLER_NAME}
