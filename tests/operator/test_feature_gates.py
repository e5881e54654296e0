"""Feature gates: defaults, groups, the file, the flag."""

from __future__ import annotations

import pytest

from trainwright.errors import UsageError
from trainwright.operator.feature_gates import parse_feature_gates, resolve_feature_gates

CASES = {
    "nothing said": ({}, {}, False),
    "the file": ({"TrainJobStatus": True}, {}, True),
    "the flag goes before the file": ({"TrainJobStatus": True}, {"TrainJobStatus": False}, False),
    "a group": ({"AllAlpha": True}, {}, True),
    "a name goes before its group": ({"AllAlpha": True, "TrainJobStatus": False}, {}, False),
    "another group": ({"AllBeta": True}, {}, False),
}


@pytest.mark.parametrize(("file", "flag", "is_on"), CASES.values(), ids=CASES)
def test_a_gate_is_resolved(file: dict[str, bool], flag: dict[str, bool], is_on: bool) -> None:
    assert resolve_feature_gates(file, flag) == {"TrainJobStatus": is_on}


def test_the_flag_is_read() -> None:
    assert parse_feature_gates("AllAlpha=true, TrainJobStatus=False,") == {
        "AllAlpha": True,
        "TrainJobStatus": False,
    }
    assert parse_feature_gates("") == {}


@pytest.mark.parametrize("text", ["TrainJobStatus", "TrainJobStatus=1", "Other=true", "=true"])
def test_a_wrong_flag_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--feature-gates"):
        parse_feature_gates(text)
