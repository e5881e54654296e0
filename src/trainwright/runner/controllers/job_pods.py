"""The pods of a Job by how they stand, and what their failures add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.core import Pod
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, is_controlled_by
from trainwright.runner.controllers.job_indexes import get_completion_index
from trainwright.runner.controllers.pod_failure_policy import (
    PodFailure,
    PodFailureAction,
    find_terminated,
    judge_pod,
)

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


class JobPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that a Job controls, each in exactly one group, and the verdicts on those that failed.

    A pod that is being deleted is `terminating`, however it ends: its Job asked for that, so it counts
    neither as a success nor as a failure.
    """

    active: tuple[Pod, ...]
    terminating: tuple[Pod, ...]
    succeeded: tuple[Pod, ...]
    failed: tuple[Pod, ...]
    verdicts: Mapping[str, PodFailure]  # by pod name

    @property
    def counted(self) -> list[Pod]:
        """The failed pods that count towards a limit."""
        return [p for p in self.failed if self.verdicts[p.metadata.name].action != PodFailureAction.IGNORE]

    @property
    def ready(self) -> int:
        """How many pods run and are ready."""
        return sum(map(is_ready, self.active))

    def find_first(self, action: PodFailureAction) -> PodFailure | None:
        """Return the verdict with this action on the pod that failed first."""
        matching = [p for p in self.failed if self.verdicts[p.metadata.name].action == action]
        return self.verdicts[min(matching, key=get_end).metadata.name] if matching else None


def classify_pods(job: Job, pods: Sequence[Json]) -> JobPods:
    """Return the pods controlled by this Job, in the order of their names."""
    own = [
        pod
        for pod in (parse_object(body, Pod) for body in pods)
        if is_controlled_by(pod.metadata, job.metadata)
    ]
    own.sort(key=lambda pod: pod.metadata.name)
    standing = [pod for pod in own if pod.metadata.deletion_timestamp is None]
    failed = tuple(pod for pod in standing if pod.status.phase == "Failed")
    return JobPods(
        active=tuple(pod for pod in standing if pod.status.phase not in {"Failed", "Succeeded"}),
        terminating=tuple(pod for pod in own if pod.metadata.deletion_timestamp is not None),
        succeeded=tuple(pod for pod in standing if pod.status.phase == "Succeeded"),
        failed=failed,
        verdicts={pod.metadata.name: judge_pod(job.spec.pod_failure_policy, pod) for pod in failed},
    )


def is_ready(pod: Pod) -> bool:
    """Say whether the pod runs and is ready: its Ready condition, else that of all its containers."""
    if pod.status.phase != "Running":
        return False
    for condition in pod.status.conditions or ():
        if condition.type == "Ready":
            return condition.status == "True"
    return all(container.ready for container in pod.status.container_statuses or ())


def get_end(pod: Pod) -> datetime:
    """Return when the last container of the pod ended."""
    return max((end.finished_at for _, end in find_terminated(pod) if end.finished_at), default=EARLIEST)


def group_by_index(pods: Sequence[Pod], completions: int) -> dict[int, list[Pod]]:
    """Return the pods of each completion index; those beyond `completions` are left out."""
    result: dict[int, list[Pod]] = {}
    for pod in pods:
        index = get_completion_index(pod)
        if index is not None and index < completions:
            result.setdefault(index, []).append(pod)
    return result
