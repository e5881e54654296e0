"""How a container ended, as a reason and a few words: exit codes, signals, out of memory, last log lines."""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.api.core import ContainerStateTerminated

OOM_KILLED: Final = "OOMKilled"
START_ERROR: Final = "StartError"

# Linux numbers, on purpose not those of the machine that decides: the container runs on Linux.
_SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
_START_FAILURES: Final = frozenset({START_ERROR, "ContainerCannotRun", "RunContainerError"})
_MAX_TAIL_LINES: Final = 20
_MAX_TAIL_CHARACTERS: Final = 2_000


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """One way to end: `reason` keys the hint, `words` continue "container X ..."."""

    reason: str
    words: str


def describe_exit(state: ContainerStateTerminated) -> Exit:
    """Return how a container ended.

    The reason OOMKilled counts more than the exit code: where a child process is what ran out of memory,
    the main process ends with a code of its own. Source: cause layers, section 2.
    """
    code = state.exit_code
    number = state.signal or (code - 128 if 128 < code < 128 + 65 else 0)
    if state.reason == OOM_KILLED:
        return Exit(reason=OOM_KILLED, words=f"ran out of memory ({OOM_KILLED}, exit code {code})")
    if state.reason in _START_FAILURES:
        return Exit(reason=START_ERROR, words=f"could not be started (exit code {code})")
    if number:
        name = _SIGNALS.get(number, f"signal {number}")
        reason = {9: "Killed", 11: "SegmentationFault", 15: "Terminated"}.get(number, "KilledBySignal")
        return Exit(reason=reason, words=f"was ended by {name} (exit code {code})")
    if code in (126, 127):
        what = "not found" if code == 127 else "not executable"
        reason = "CommandNotFound" if code == 127 else "CommandNotExecutable"
        return Exit(reason=reason, words=f"exited with code {code} (command {what})")
    return Exit(reason="NonZeroExit", words=f"exited with code {code}")


def is_aftermath(state: ContainerStateTerminated) -> bool:
    """Say whether a container was made to end (SIGTERM, SIGKILL), as other ranks are in a failure."""
    return state.reason != OOM_KILLED and (state.exit_code in (137, 143) or state.signal in (9, 15))


def build_tail(message: str) -> str:
    """Return the end of a termination message: its last 20 lines, at most 2,000 characters.

    The kubelet puts the last log lines there where the policy is FallbackToLogsOnError; of a traceback the
    end tells most.
    """
    lines = message.strip().splitlines()[-_MAX_TAIL_LINES:]
    tail = "\n".join(lines)
    return tail if len(tail) <= _MAX_TAIL_CHARACTERS else "..." + tail[-_MAX_TAIL_CHARACTERS:]
