"""What a PodGroup tells about a gang of which not all pods can be placed.

Volcano writes a condition that says what is missing. The controller of scheduler-plugins, where it runs,
writes a phase, and its scheduler tells the rest in the pods: there the PodGroup says how many have to fit at
once, the first pod that does not fit says why.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.api.pod_group import PodGroup
from trainwright.control.evidence import Evidence, Force
from trainwright.control.view import Place

GANG_NOT_COMPLETE: Final = "GangNotComplete"

_PLACED: Final = frozenset({"Running", "Completed", "Finished", "Failed"})


def find_gang_evidence(pod_group: PodGroup, unplaced: Evidence | None) -> Evidence | None:
    """Return that the gang is not complete; None while nothing says so.

    `unplaced` is the evidence of the first pod that no node takes.
    """
    if pod_group.status.phase in _PLACED:
        return None
    needs = f"PodGroup {pod_group.metadata.name} needs {pod_group.spec.min_member} pods at once"
    evidence = Evidence(
        force=Force.GANG,
        layer="PodGroup",
        kind="PodGroup",
        name=pod_group.metadata.name,
        reason=GANG_NOT_COMPLETE,
        message=needs,
        place=unplaced.place if unplaced is not None else Place("", 0, 0),
    )
    for condition in pod_group.status.conditions or ():
        if condition.type == "Unschedulable" and condition.status == "True":
            told = (condition.message or condition.reason).strip()
            return msgspec.structs.replace(
                evidence, message=f"{needs}: {told}", at=condition.last_transition_time
            )
    if unplaced is None:
        return None
    return msgspec.structs.replace(evidence, message=f"{needs}: {unplaced.message}", at=unplaced.at)
