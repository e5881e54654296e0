"""Feature gates: their names and defaults, and how the flag overrides the file.

Source: spec 01, section 6.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainwright.api.wording import suggest
from trainwright.errors import UsageError

# Name -> (stage, default). The two groups switch all gates of a stage that are not named themselves.
FEATURE_GATES: Final[dict[str, tuple[str, bool]]] = {
    "AllAlpha": ("group", False),
    "AllBeta": ("group", False),
    "TrainJobStatus": ("alpha", False),
}
_GROUPS: Final = {"AllAlpha": "alpha", "AllBeta": "beta"}


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Return the gates of the flag `--feature-gates A=true,B=false`. Raises UsageError."""
    gates: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator or value.lower() not in ("true", "false"):
            raise UsageError(f"--feature-gates: {part!r} is not NAME=true or NAME=false")
        if name not in FEATURE_GATES:
            known = ", ".join(FEATURE_GATES)
            raise UsageError(
                f"--feature-gates: {name!r} is not known; known: {known}{suggest(name, list(FEATURE_GATES))}"
            )
        gates[name] = value.lower() == "true"
    return gates


def resolve_feature_gates(file: Mapping[str, bool], flag: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate's state: its default, a group's, the file's, the flag's, the last one wins."""
    chosen = {**file, **flag}
    state = {name: default for name, (stage, default) in FEATURE_GATES.items() if stage != "group"}
    for group, stage in _GROUPS.items():
        if chosen.get(group):
            state |= {name: True for name in state if FEATURE_GATES[name][0] == stage}
    return state | {name: value for name, value in chosen.items() if name in state}
