"""What is seen -> what to do. Pure: no clock, no I/O, no logging."""

from trainwright.control.decide import decide
from trainwright.control.seen import Refusal, Seen
from trainwright.control.snapshot import (
    FoundSnapshot,
    build_snapshot,
    find_snapshot,
    find_unused_snapshots,
    list_snapshot_names,
)

__all__ = [
    "FoundSnapshot",
    "Refusal",
    "Seen",
    "build_snapshot",
    "decide",
    "find_snapshot",
    "find_unused_snapshots",
    "list_snapshot_names",
]
