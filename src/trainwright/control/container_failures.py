"""How a container of a pod failed last: for good, or restarted in place by the kubelet.

With `restartPolicy: OnFailure` a failing container goes through terminated, waiting (CrashLoopBackOff) and
running again and again, while its pod is Running. All three states tell the same failure here, so that its
cause settles: read from the state, or from the last state of a container that was started again. It counts
until the new run has lasted long enough to say that the trouble is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from trainwright.api.core import ContainerStateTerminated, ContainerStatus, Pod
from trainwright.control.deadlines import add_seconds
from trainwright.control.exits import OOM_KILLED
from trainwright.control.view import is_live

# The kubelet, too, forgets a crash once a container has run for ten minutes.
_MIN_RECOVERY: Final = timedelta(minutes=1)
_MAX_RECOVERY: Final = timedelta(minutes=10)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The last failure of a container.

    `count` is how often it has failed in this pod. `is_restarted` says that the kubelet starts it again in
    place. `recovers_at` is when a run that goes on by now counts as a recovery, None while none goes on.
    """

    status: ContainerStatus
    ended: ContainerStateTerminated
    count: int = 1
    is_restarted: bool = False
    recovers_at: datetime | None = None


def list_failures(pod: Pod, status: ContainerStatus) -> list[Failure]:
    """Return how the container failed, the last failure first: at most two are known.

    None for a container that never failed, or ended well.
    """
    ended, running = status.state.terminated, status.state.running
    failures = []
    if ended is not None:
        if not _is_failure(ended):
            return []
        failures.append(
            Failure(
                status=status,
                ended=ended,
                count=status.restart_count + 1,
                is_restarted=status.restart_count > 0 or (is_live(pod) and _restarts_in_place(pod)),
            )
        )
    last = status.last_state.terminated
    if last is None or not _is_failure(last) or (running is not None and running.started_at is None):
        return failures
    # The kubelet counts a restart when the container is started, not when it begins to wait for that.
    failures.append(
        Failure(
            status=status,
            ended=last,
            count=max(status.restart_count + (status.state.waiting is not None), 1),
            is_restarted=True,
            recovers_at=_get_recovery(running.started_at, last) if running and running.started_at else None,
        )
    )
    return failures


def _is_failure(ended: ContainerStateTerminated) -> bool:
    return ended.exit_code != 0 or ended.reason == OOM_KILLED


def _restarts_in_place(pod: Pod) -> bool:
    return bool(pod.spec) and (pod.spec or {}).get("restartPolicy", "Always") != "Never"


def _get_recovery(started_at: datetime, last: ContainerStateTerminated) -> datetime:
    """Return when the run will have lasted twice as long as the one that failed, a minute at the least."""
    lasted = last.finished_at - last.started_at if last.started_at and last.finished_at else timedelta()
    return add_seconds(started_at, min(max(2 * lasted, _MIN_RECOVERY), _MAX_RECOVERY).total_seconds())
