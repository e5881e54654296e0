"""Gang scheduling: the pods of a job that start together are placed together, or not at all.

Stands beside `frameworks`, below admission and render, which both ask the one registry here.

    members        which pods start together, and which join them later
    demand         what they ask for
    contract       what a gang scheduler is: a value that says how members are marked
    coscheduling, volcano, kai, native    one module per scheduler
    exclusive_placement    why a gang never starts beside JobSet's exclusive-topology
    slurm_bridge   a scheduler that reads PodGroups of others, and annotations
    registry       which of them a runtime's `podGroupPolicy` chooses

Why it is so, and what differs from the peer: docs/design/gang.md.
"""

from trainwright.gang.contract import Gang, GangScheduler, Membership
from trainwright.gang.exclusive_placement import list_placement_warnings
from trainwright.gang.members import Member, Members, find_members
from trainwright.gang.registry import (
    GANG_SCHEDULERS,
    build_membership,
    find_gang_errors,
    list_gang_warnings,
    list_queue_warnings,
)

__all__ = [
    "GANG_SCHEDULERS",
    "Gang",
    "GangScheduler",
    "Member",
    "Members",
    "Membership",
    "build_membership",
    "find_gang_errors",
    "find_members",
    "list_gang_warnings",
    "list_placement_warnings",
    "list_queue_warnings",
]
