"""Every reason that we give has a hint, and the docs have them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.api.core import ContainerStateTerminated
from trainwright.control import ending, problem
from trainwright.control.exits import describe_exit
from trainwright.control.hints import HINTS, get_hint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "status-and-cause.md"


def build_table() -> str:
    """The table as it stands in the docs."""
    rows = [f"| `{reason}` | {hint} |" for reason, hint in HINTS.items()]
    return "\n".join(["| reason | what to do |", "|---|---|", *rows])


def test_the_docs_have_the_table_of_hints() -> None:
    _, _, rest = PAGE.read_text().partition("<!-- hints: begin")
    table = rest.partition("-->")[2].partition("<!-- hints: end -->")[0].strip()
    assert table == build_table()


@pytest.mark.parametrize(
    "reason", [*sorted(problem.OWN_REASONS), *sorted(ending.DECIDED_BY_US), ending.PODS_GONE]
)
def test_every_reason_of_ours_has_a_hint(reason: str) -> None:
    assert reason in HINTS


def test_every_way_to_end_has_a_hint() -> None:
    for code in range(1, 256):
        for reason in ("Error", "OOMKilled", "StartError"):
            assert describe_exit(ContainerStateTerminated(exit_code=code, reason=reason)).reason in HINTS


@pytest.mark.parametrize(
    ("layer", "words"), [("JobSet", "the API server refuses the object"), ("Container", "see the message")]
)
def test_a_reason_of_somebody_else_gets_a_general_hint(layer: str, words: str) -> None:
    assert get_hint("SomethingNew", layer).startswith(words)


def test_hints_are_one_sentence_without_a_full_stop() -> None:
    assert [hint for hint in HINTS.values() if hint.endswith(".") or "\n" in hint] == []
