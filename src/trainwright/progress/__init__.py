"""What code inside a job uses: report progress and metrics to whoever runs the TrainJob.

    from trainwright.progress import report

    for step, batch in enumerate(loader, start=1):
        ...
        report(step=step, total=len(loader), metrics={"loss": loss})

Needs the standard library alone, imports nothing else of trainwright and works from Python 3.9 on, because it
runs in the user's environment, not in ours. Outside a TrainJob every call returns at once and does nothing.
Inside one, reports leave from a thread in the background: they never raise, never wait for the network, and
never keep the interpreter from ending. How: docs/design/progress.md.

Callbacks: `trainwright.progress.huggingface`, `trainwright.progress.lightning`.
"""

from __future__ import annotations

import atexit
import os

from trainwright.progress.reporter import Reporter

TYPE_CHECKING = False  # `typing` is not worth its import here; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["flush", "report"]

_EXIT_SECONDS = 2.0  # the longest that a silent server may hold up the end of a training
_LOADING_SECONDS = 10.0  # http and ssl, for a script that ends right after its first report on a busy machine

_reporter = Reporter(os.environ)


def report(
    *,
    step: float | None = None,
    total: float | None = None,
    epoch: float | None = None,
    metrics: Mapping[str, object] | None = None,
    force: bool = False,
) -> None:
    """Tell the TrainJob how far the training is. Never raises, never blocks; call it as often as you like.

    `step` of `total` (batches, epochs, tokens: any unit) gives percent and remaining time. `metrics` are
    numbers, one-element tensors or short texts. What a call leaves out keeps its last value, so that a loop
    may report its loss and an evaluation its accuracy; a metric set to None goes away. The newest state is
    sent at most once every 5 seconds, and once more at exit; `force` sends it at once. Only rank 0 reports.
    """
    _reporter.report(step, total, epoch, metrics, force)


def flush(timeout_seconds: float = _EXIT_SECONDS) -> bool:
    """Send what has not been sent, and wait for it. Says whether everything reported has arrived."""
    return _reporter.flush(timeout_seconds)


def _flush_at_exit() -> None:
    _reporter.wait_until_prepared(_LOADING_SECONDS)
    _reporter.flush(_EXIT_SECONDS)


def _start_anew() -> None:
    """Forget the parent's reports after a fork: its thread is not here, and its lock may be held for ever."""
    global _reporter  # noqa: PLW0603 (a forked child has to drop its parent's reporter)
    _reporter = Reporter(os.environ)


atexit.register(_flush_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
