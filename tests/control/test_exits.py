"""Exit codes, signals and last words."""

from __future__ import annotations

import pytest

from trainwright.api.core import ContainerStateTerminated
from trainwright.control.exits import Exit, build_tail, describe_exit, is_aftermath


def ended(exit_code: int, reason: str = "Error", signal: int | None = None) -> ContainerStateTerminated:
    return ContainerStateTerminated(exit_code=exit_code, reason=reason, signal=signal)


ENDS = {
    "plain": (ended(1), "NonZeroExit", "exited with code 1"),
    "usage": (ended(2), "NonZeroExit", "exited with code 2"),
    "not executable": (ended(126), "CommandNotExecutable", "exited with code 126 (command not executable)"),
    "not found": (ended(127), "CommandNotFound", "exited with code 127 (command not found)"),
    "start error": (ended(128, "StartError"), "StartError", "could not be started (exit code 128)"),
    "128 by itself": (ended(128), "NonZeroExit", "exited with code 128"),
    "SIGABRT": (ended(134), "KilledBySignal", "was ended by SIGABRT (exit code 134)"),
    "SIGKILL": (ended(137), "Killed", "was ended by SIGKILL (exit code 137)"),
    "SIGSEGV": (ended(139), "SegmentationFault", "was ended by SIGSEGV (exit code 139)"),
    "SIGTERM": (ended(143), "Terminated", "was ended by SIGTERM (exit code 143)"),
    "signal field": (ended(0, signal=15), "Terminated", "was ended by SIGTERM (exit code 0)"),
    "unnamed signal": (ended(128 + 40), "KilledBySignal", "was ended by signal 40 (exit code 168)"),
    "beyond signals": (ended(255), "NonZeroExit", "exited with code 255"),
    "OOM": (ended(137, "OOMKilled"), "OOMKilled", "ran out of memory (OOMKilled, exit code 137)"),
}


@pytest.mark.parametrize(("state", "reason", "words"), ENDS.values(), ids=ENDS)
def test_an_end_is_told_in_words(state: ContainerStateTerminated, reason: str, words: str) -> None:
    assert describe_exit(state) == Exit(reason=reason, words=words)


def test_only_an_end_by_sigterm_or_sigkill_is_an_aftermath() -> None:
    ends = (ended(143), ended(137), ended(0, signal=9), ended(137, "OOMKilled"), ended(139), ended(1))
    assert [is_aftermath(end) for end in ends] == [True, True, True, False, False, False]


def test_of_last_words_the_end_is_kept() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    assert build_tail(text).splitlines() == [f"line {number}" for number in range(80, 100)]
    assert build_tail("x" * 5000) == "..." + "x" * 2000
    assert build_tail("  \n ") == ""
