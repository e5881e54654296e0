"""Conditions of JobSets and Jobs: how one is set without losing when it began."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trainwright.api.batch import JobCondition
from trainwright.api.meta import Condition, truncate_to_seconds

TRUE: Final = "True"
FALSE: Final = "False"

# Condition types of a JobSet.
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
RESTARTING: Final = "RestartingJobSet"
STARTUP_IN_PROGRESS: Final = "StartupPolicyInProgress"
STARTUP_COMPLETED: Final = "StartupPolicyCompleted"

# Condition types of a Job besides Suspended and Failed.
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"
COMPLETE: Final = "Complete"
FAILURE_TARGET: Final = "FailureTarget"

_EXCLUSIVE: Final = {STARTUP_IN_PROGRESS: STARTUP_COMPLETED, STARTUP_COMPLETED: STARTUP_IN_PROGRESS}


def set_condition(conditions: Sequence[Condition] | None, new: Condition) -> list[Condition]:
    """Return the conditions with `new` in them; an equal (type, status) stays as it was.

    A condition that would be added as False is not: who was never suspended has no Suspended condition.
    Of the two startup conditions the other one turns False. Source: spec 02, section 14.7.
    """
    result: list[Condition] = []
    found = False
    for old in conditions or ():
        if old.type == new.type:
            found = True
            result.append(old if old.status == new.status else new)
        elif new.status == TRUE and old.status == TRUE and _EXCLUSIVE.get(new.type) == old.type:
            result.append(
                Condition(
                    type=old.type,
                    status=FALSE,
                    reason=old.reason,
                    message=old.message,
                    last_transition_time=new.last_transition_time,
                )
            )
        else:
            result.append(old)
    if not found and new.status == TRUE:
        result.append(new)
    return result


def build_condition(type_: str, status: str, reason: str, message: str, now: datetime) -> Condition:
    """Return a condition that began now, to the second."""
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=truncate_to_seconds(now),
    )


def has_condition(conditions: Sequence[Condition | JobCondition] | None, type_: str) -> bool:
    """Say whether the condition is True."""
    return find_condition(conditions, type_) is not None


def find_condition(
    conditions: Sequence[Condition | JobCondition] | None, type_: str
) -> Condition | JobCondition | None:
    """Return the condition of this type if it is True."""
    return next((c for c in conditions or () if c.type == type_ and c.status == TRUE), None)


def set_job_condition(conditions: Sequence[JobCondition] | None, new: JobCondition) -> list[JobCondition]:
    """Return a Job's conditions with `new` in them, as `set_condition` does."""
    result = [c for c in conditions or () if c.type != new.type]
    old = next((c for c in conditions or () if c.type == new.type), None)
    if old is not None and old.status == new.status:
        return list(conditions or ())
    if old is None and new.status != TRUE:
        return result
    return [*result, new]


def build_job_condition(type_: str, status: str, reason: str, message: str, now: datetime) -> JobCondition:
    """Return a Job's condition that began now, to the second."""
    return JobCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=truncate_to_seconds(now),
    )
