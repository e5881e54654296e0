"""Every row of the table of causes, as far as it can be seen: what stands where, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from control.builders import runtime, step, train_job
from control.troubled_pods import (
    POD,
    WHO,
    at,
    condition,
    container,
    crash_loop,
    ended,
    event,
    waiting,
    world_with_pods,
)
from control.world import JOB, NOW, World
from trainwright.api.core import Event
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.trainjob import Cause
from trainwright.control.hints import HINTS

UNKNOWN_HOST = 'failed to pull and unpack image "x/y:1": failed to resolve reference: no such host'
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."

# status of the pod -> layer, reason, message, seconds after NOW at which it happened (None: when it is seen)
POD_CASES: dict[str, tuple[Json, str, str, str, int | None]] = {
    "image that cannot be pulled": (
        waiting("ErrImagePull", UNKNOWN_HOST),
        "Container",
        "ImagePullBackOff",
        f"{WHO}: container node: {UNKNOWN_HOST}",
        None,
    ),
    "image that cannot be pulled, in the pause": (
        waiting("ImagePullBackOff", f'Back-off pulling image "x/y:1": ErrImagePull: {UNKNOWN_HOST}'),
        "Container",
        "ImagePullBackOff",
        f"{WHO}: container node: {UNKNOWN_HOST}",
        None,
    ),
    "image name malformed": (
        waiting("InvalidImageName", "couldn't parse image name"),
        "Container",
        "InvalidImageName",
        f"{WHO}: container node: couldn't parse image name",
        None,
    ),
    "image never pulled": (
        waiting("ErrImageNeverPull", "not present with pull policy of Never"),
        "Container",
        "ErrImageNeverPull",
        f"{WHO}: container node: not present with pull policy of Never",
        None,
    ),
    "ConfigMap for the environment missing": (
        waiting("CreateContainerConfigError", 'configmap "X" not found'),
        "Container",
        "CreateContainerConfigError",
        f'{WHO}: container node: configmap "X" not found',
        None,
    ),
    "node selector fits nothing": (
        condition("PodScheduled", "False", "Unschedulable", NO_NODE),
        "Pod",
        "Unschedulable",
        f"{WHO}: {NO_NODE}",
        3,
    ),
    "scheduling gate": (
        condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty gates"),
        "Pod",
        "SchedulingGated",
        f"{WHO}: Scheduling is blocked due to non-empty gates",
        3,
    ),
    "exits 3": (ended(3), "Container", "NonZeroExit", f"{WHO}: container node exited with code 3", 5),
    "exits 3 with last words": (
        ended(3, message="Traceback\nValueError: 7\n"),
        "Container",
        "NonZeroExit",
        f"{WHO}: container node exited with code 3; last log lines:\nTraceback\nValueError: 7",
        5,
    ),
    "restarted in place": (
        crash_loop(3, 2),
        "Container",
        "CrashLoopBackOff",
        f"{WHO}: container node exited with code 3 (failed 3 times, restarted in place)",
        4,
    ),
    "memory limit, main process": (
        ended(137, "OOMKilled"),
        "Container",
        "OOMKilled",
        f"{WHO}: container node ran out of memory (OOMKilled, exit code 137)",
        5,
    ),
    "memory limit, child process": (
        ended(1, "OOMKilled"),
        "Container",
        "OOMKilled",
        f"{WHO}: container node ran out of memory (OOMKilled, exit code 1)",
        5,
    ),
    "segmentation fault": (
        ended(139),
        "Container",
        "SegmentationFault",
        f"{WHO}: container node was ended by SIGSEGV (exit code 139)",
        5,
    ),
    "executable not found": (
        ended(128, "StartError", 'exec: "X": executable file not found in $PATH'),
        "Container",
        "StartError",
        f"{WHO}: container node could not be started (exit code 128): "
        'exec: "X": executable file not found in $PATH',
        5,
    ),
    "command not found by a shell": (
        ended(127),
        "Container",
        "CommandNotFound",
        f"{WHO}: container node exited with code 127 (command not found)",
        5,
    ),
    "ephemeral storage limit": (
        {
            **ended(137, "ContainerStatusUnknown"),
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi.",
        },
        "Pod",
        "Evicted",
        f"{WHO}: Pod ephemeral local storage usage exceeds the total limit of containers 10Mi.",
        5,
    ),
    "init container exits 9": (
        {
            "phase": "Failed",
            "initContainerStatuses": [
                {
                    "name": "prepare",
                    "state": {"terminated": {"exitCode": 9, "reason": "Error", "finishedAt": at(5)}},
                }
            ],
            "containerStatuses": [container({"waiting": {"reason": "PodInitializing"}})],
        },
        "Container",
        "NonZeroExit",
        f"{WHO}: init container prepare exited with code 9",
        5,
    ),
    "evicted through the API": (
        {
            **condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting"),
            "phase": "Running",
        },
        "Pod",
        "EvictionByEvictionAPI",
        f"{WHO}: EvictionByEvictionAPI: Eviction API: evicting",
        3,
    ),
}


@pytest.mark.parametrize(("status", "layer", "reason", "message", "at"), POD_CASES.values(), ids=POD_CASES)
def test_a_pod_tells_the_cause(status: Json, layer: str, reason: str, message: str, at: int | None) -> None:
    world = world_with_pods([status])
    since = NOW + timedelta(seconds=at) if at is not None else world.now
    assert world.status.cause == Cause(
        layer=layer,
        kind="Pod",
        name=POD,
        reason=reason,
        message=message,
        hint=HINTS[reason].replace("NAME", JOB),
        since=since,
    )


QUOTA = "exceeded quota: Q, requested: pods=1, used: pods=0, limited: pods=0"
REFUSED_PODS = {
    "quota full": (
        f'Error creating: pods "demo-node-0-0-x7k2p" is forbidden: {QUOTA}',
        "QuotaExceeded",
        f"Error creating: pods is forbidden: {QUOTA}",
    ),
    "quota on a resource that the pod does not name": (
        'Error creating: pods "p" is forbidden: failed quota: Q: must specify requests.cpu for: node',
        "QuotaNeedsRequests",
        "Error creating: pods is forbidden: failed quota: Q: must specify requests.cpu for: node",
    ),
    "limit range": (
        'Error creating: Pod "p" is invalid: spec.containers[0].resources.requests: Invalid value: "2": '
        "must be less than or equal to cpu limit of 1",
        "LimitRangeViolated",
        'Error creating: Pod is invalid: spec.containers[0].resources.requests: Invalid value: "2": '
        "must be less than or equal to cpu limit of 1",
    ),
    "pod security": (
        'Error creating: pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot',
        "PodSecurityViolated",
        'Error creating: pods is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot',
    ),
    "service account missing": (
        'Error creating: pods "p" is forbidden: error looking up service account ns/X: '
        'serviceaccount "X" not found',
        "ServiceAccountNotFound",
        "Error creating: pods is forbidden: error looking up service account ns/X: "
        'serviceaccount "X" not found',
    ),
    "anything else": ("Error creating: the moon", "FailedCreate", "Error creating: the moon"),
}


@pytest.mark.parametrize(("text", "reason", "message"), REFUSED_PODS.values(), ids=REFUSED_PODS)
def test_where_no_pod_could_be_made_the_event_on_the_job_tells(text: str, reason: str, message: str) -> None:
    world = without_pods([event("Job", "demo-node-0", "FailedCreate", text)])
    assert world.status.cause == Cause(
        layer="Job",
        kind="Job",
        name="demo-node-0",
        reason=reason,
        message=message,
        hint=HINTS[reason],
        since=NOW,
    )


def without_pods(events: Sequence[Event]) -> World:
    """A world whose Job has no pods, with counters at zero."""
    world = World(train_job(), runtime())
    world.settle()
    world.objects = {key: obj for key, obj in world.objects.items() if key[0] != "Pod"}
    world.merge("Job", "demo-node-0", {"status": {"active": 0, "ready": 0}})
    counters = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    world.merge("JobSet", JOB, {"status": {"replicatedJobsStatus": [counters]}})
    for number, about in enumerate(events):
        meta = ObjectMeta(name=f"e{number}", namespace="ns")
        world.put(build_object(msgspec.structs.replace(about, metadata=meta)))
    world.rest()
    return world


QUOTA = 'Error creating: pods "p" is forbidden: exceeded quota: q, requested: pods=1, limited: pods=2'


def half_made(*, active: int = 2, **status: int) -> World:
    """A world in which the API server lets a Job have two of its four pods, which wait for the rest."""
    world = World(train_job(num_nodes=4), runtime())
    world.settle()
    world.run_pods()
    for pod in sorted(world.pods(), key=_get_rank)[2:]:
        world.delete("Pod", pod["metadata"]["name"])
    world.merge("Job", "demo-node-0", {"status": {"active": active, "ready": 2, **status}})
    counters = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    world.merge("JobSet", JOB, {"status": {"replicatedJobsStatus": [counters]}})
    about = event("Job", "demo-node-0", "FailedCreate", QUOTA)
    world.put(build_object(msgspec.structs.replace(about, metadata=ObjectMeta(name="e", namespace="ns"))))
    world.rest()
    return world


def _get_rank(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def test_pods_of_which_only_some_could_be_made_wait_for_the_others_and_the_event_on_the_job_tells() -> None:
    world = half_made()
    assert world.status.cause is not None
    assert (world.status.cause.layer, world.status.cause.name, world.status.cause.reason) == (
        "Job",
        "demo-node-0",
        "QuotaExceeded",
    )
    assert world.status.phase == "Created"


@pytest.mark.parametrize(
    "status", [{"active": 4}, {"active": 2, "succeeded": 2}, {"active": 3, "terminating": 1}]
)
def test_an_event_about_pods_that_could_not_be_made_is_history_once_they_could(
    status: dict[str, int],
) -> None:
    world = half_made(**status)
    assert world.status.cause is None


def test_of_several_events_the_newest_counts() -> None:
    world = without_pods(
        [
            event("Job", "demo-node-0", "FailedCreate", "Error creating: new", 9),
            event("Job", "demo-node-0", "FailedCreate", "Error creating: old", 1),
            event("Job", "demo-other-0", "FailedCreate", "Error creating: of another Job", 99),
            event("Job", "demo-node-0", "FailedCreate", "Error creating: not a warning", 99, "Normal"),
        ]
    )
    assert world.status.cause is not None
    assert world.status.cause.message == "Error creating: new"


def test_a_job_set_that_cannot_make_its_jobs_tells_by_its_own_event() -> None:
    world = World(train_job(), runtime())
    world.rest()
    about = event("JobSet", JOB, "JobCreationFailed", "job creation failed: forbidden")
    world.put(build_object(msgspec.structs.replace(about, metadata=ObjectMeta(name="e", namespace="ns"))))
    world.rest()
    assert world.status.cause is not None
    assert (world.status.cause.layer, world.status.cause.reason) == ("JobSet", "JobCreationFailed")


def test_zero_counters_without_an_event_are_no_cause() -> None:
    assert without_pods([]).status.cause is None


CREATING = waiting("ContainerCreating")
MOUNT = event("Pod", POD, "FailedMount", 'MountVolume.SetUp failed for volume "s" : secret "X" not found', 2)


def test_a_volume_that_cannot_be_mounted_tells_only_by_an_event() -> None:
    world = world_with_pods([CREATING], [MOUNT])
    cause = world.status.cause
    assert cause is not None
    assert (cause.layer, cause.reason, cause.since) == ("Pod", "FailedMount", NOW + timedelta(seconds=2))
    assert cause.message.endswith('secret "X" not found')


TOO_EARLY = {
    "whose pod it is": (
        'failed to fetch token: serviceaccounts "default" is forbidden: User "system:node:a" cannot create '
        'resource "serviceaccounts/token" in API group "" in the namespace "ns": no relationship found '
        "between node 'a' and this object"
    ),
    "what is in a ConfigMap": "failed to sync configmap cache: timed out waiting for the condition",
}


@pytest.mark.parametrize("message", TOO_EARLY.values(), ids=TOO_EARLY)
@pytest.mark.parametrize(("count", "told"), [(None, False), (1, False), (2, False), (3, True)])
def test_what_the_kubelet_cannot_know_yet_is_no_cause_until_it_stays_so(
    count: int | None, told: bool, message: str
) -> None:
    """1. A pod is given to a node. 2. The kubelet asks for its token before the API server's authorizer has
    heard of that, and is refused. 3. It asks again."""
    refused = msgspec.structs.replace(event("Pod", POD, "FailedMount", message, 3), count=count)
    cause = world_with_pods([CREATING], [refused]).status.cause
    assert (cause is not None) is told


@pytest.mark.parametrize(
    "reason", ["FailedScheduling", "Failed", "InspectFailed", "BackOff", "ErrImageNeverPull"]
)
def test_what_the_state_of_the_container_is_about_to_say_is_not_taken_from_an_event(reason: str) -> None:
    later = event("Pod", POD, reason, "Error: ErrImagePull", 3)
    assert world_with_pods([CREATING], [later]).status.cause is None
    told = world_with_pods([CREATING], [MOUNT, later]).status.cause
    assert told is not None
    assert told.reason == "FailedMount"


def test_a_mount_that_failed_before_the_pod_was_ready_to_start_containers_is_history() -> None:
    ready = {"type": "PodReadyToStartContainers", "status": "True"}
    assert world_with_pods([{**CREATING, "conditions": [ready]}], [MOUNT]).status.cause is None


def test_a_pod_that_starts_or_runs_is_no_cause() -> None:
    running = {
        "phase": "Running",
        "containerStatuses": [{"name": "node", "ready": True, "state": {"running": {}}}],
    }
    assert world_with_pods([CREATING, running, {"phase": "Pending"}]).status.cause is None


def test_an_image_that_is_tried_and_paused_in_turns_is_one_cause_and_one_write() -> None:
    world = world_with_pods([waiting("ErrImagePull", UNKNOWN_HOST)])
    told = world.status.cause
    world.writes.clear()
    for status in (
        waiting("ImagePullBackOff", 'Back-off pulling image "x/y:1"'),
        waiting("ErrImagePull", UNKNOWN_HOST),
        waiting("ImagePullBackOff", f'Back-off pulling image "x/y:1": ErrImagePull: {UNKNOWN_HOST}'),
    ):
        world.wait(20)
        world.set_pods(status)
        world.rest()
    assert world.status.cause == told
    assert world.writes == []
    assert [event.reason for event in world.events] == ["ImagePullBackOff"]


PROBE = event("Pod", POD, "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500", 4)


def test_a_container_that_its_probe_ended_tells_which() -> None:
    told = world_with_pods([ended(143, message="bye")], [PROBE]).status.cause
    assert told is not None
    assert (told.reason, told.message) == (
        "ProbeFailed",
        f"{WHO}: container node was ended by SIGTERM (exit code 143): {PROBE.message}; last log lines:\nbye",
    )


def test_a_pod_that_its_probe_ended_is_no_victim_of_another() -> None:
    probe = event("Pod", POD, "Unhealthy", "Startup probe failed: timeout", 4)
    told = world_with_pods([ended(137), _end_at(9, 1)], [probe]).status.cause
    assert told is not None
    assert told.reason == "ProbeFailed"


@pytest.mark.parametrize(
    ("status", "about"),
    [
        (ended(3), PROBE),
        (ended(143), event("Pod", POD, "Unhealthy", "Readiness probe failed: timeout", 4)),
        (ended(143), event("Pod", "demo-other", "Unhealthy", "Liveness probe failed: timeout", 4)),
    ],
    ids=["it ended by itself", "the probe is for services", "the probe is another pod's"],
)
def test_a_probe_is_no_cause_where(status: Json, about: Event) -> None:
    told = world_with_pods([status], [about]).status.cause
    assert told is not None
    assert told.reason != "ProbeFailed"


def test_a_cause_that_is_gone_leaves_the_status() -> None:
    world = world_with_pods([waiting("ErrImagePull", UNKNOWN_HOST)])
    world.run_pods()
    world.settle()
    assert world.status.cause is None
    assert world.status.phase == "Running"


def test_the_lowest_rank_speaks_and_the_others_are_counted() -> None:
    world = world_with_pods([waiting("ErrImagePull", UNKNOWN_HOST)] * 3)
    assert world.status.cause is not None
    assert world.status.cause.message.startswith(WHO)
    assert world.status.cause.message.endswith("(2 other pods say the same)")


@pytest.mark.parametrize(("pods", "writes"), [(64, 8)])
def test_pods_of_a_large_job_that_get_stuck_one_by_one_cost_few_writes(pods: int, writes: int) -> None:
    world = World(train_job(num_nodes=pods), runtime())
    world.settle()
    world.writes.clear()
    for pod in world.pods():
        world.set_pod(pod, waiting("ErrImagePull", UNKNOWN_HOST))
        world.rest()
    assert 0 < len(world.writes) <= writes + 1


def _end_at(seconds: int, code: int, reason: str = "Error") -> Json:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at(seconds)}}
    return {"phase": "Failed", "containerStatuses": [container(state)]}


FORCE = [
    {**_end_at(3, 1), "reason": "Evicted", "message": "low on memory"},
    {
        **crash_loop(1, 1),
        "conditions": condition("DisruptionTarget", "True", "R", "m")["conditions"],
    },
    crash_loop(1, 1),
    waiting("ErrImagePull", UNKNOWN_HOST),
    condition("PodScheduled", "False", "Unschedulable", NO_NODE),
]
REASONS = ["Evicted", "DisruptionTarget", "CrashLoopBackOff", "ImagePullBackOff", "Unschedulable"]


@pytest.mark.parametrize("strongest", range(len(FORCE)), ids=REASONS)
def test_of_several_troubles_the_strongest_counts_whatever_the_rank(strongest: int) -> None:
    world = world_with_pods(list(reversed(FORCE[strongest:])))
    assert world.status.cause is not None
    assert world.status.cause.reason == REASONS[strongest]


FIRST_FAILURES = {
    "the first in time": ([_end_at(9, 1), _end_at(7, 5), _end_at(8, 1)], 1),
    "the lowest rank of one second": ([_end_at(7, 3), _end_at(7, 5)], 0),
    "not a victim, even if it is written down earlier": (
        [_end_at(6, 143), _end_at(7, 5), _end_at(6, 137)],
        1,
    ),
    "the first victim where there is nothing else": ([_end_at(7, 143), _end_at(6, 137)], 1),
    "out of memory is no victim": ([_end_at(8, 1), _end_at(7, 137, "OOMKilled")], 1),
}


@pytest.mark.parametrize(("statuses", "rank"), FIRST_FAILURES.values(), ids=FIRST_FAILURES)
def test_the_rank_that_failed_first_is_the_cause(statuses: list[Json], rank: int) -> None:
    world = world_with_pods(statuses)
    assert world.status.cause is not None
    assert f"rank {rank})" in world.status.cause.message


def test_pods_of_an_earlier_attempt_are_no_evidence() -> None:
    world = World(train_job(), runtime(failurePolicy={"maxRestarts": 1}))
    world.settle()
    world.fail_pod(0, 3)
    [old] = world.pods()
    world.settle()
    world.run_pods()
    world.objects["Pod", "old"] = {**old, "metadata": {**old["metadata"], "name": "old"}}
    world.settle()
    assert world.status.cause is None


def test_since_is_when_the_cause_was_first_seen() -> None:
    world = world_with_pods([waiting("InvalidImageName", "bad")])
    first: datetime = world.now
    world.wait(100)
    world.set_pods(waiting("InvalidImageName", "still bad"))
    world.rest()
    assert world.status.cause is not None
    assert (world.status.cause.since, world.status.cause.message[-9:]) == (first, "still bad")


def test_a_trouble_is_one_event() -> None:
    world = world_with_pods([condition("PodScheduled", "False", "Unschedulable", NO_NODE)])
    world.set_pods(condition("PodScheduled", "False", "Unschedulable", NO_NODE.replace("0/1", "0/2")))
    world.rest()
    assert [(event.type, event.reason) for event in world.events] == [("Warning", "Unschedulable")]


def test_an_initializer_that_fails_is_named() -> None:
    world = World(train_job(), runtime(step("setup", ancestor="dataset-initializer"), step()))
    world.settle()
    world.fail_pod(0, 7, role="setup")
    world.run_controllers()
    world.settle()
    assert world.status.cause is not None
    assert "(setup, rank 0): container node exited with code 7" in world.status.cause.message


def test_what_a_drained_pod_said_counts_until_the_job_set_has_acted_on_it() -> None:
    """1. The pod is evicted and says so. 2. It is gone; its Job has counted a failure. 3. JobSet fails."""
    told = condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "evicting")
    evicted = {**told, "phase": "Running"}
    world = world_with_pods([evicted])
    said = world.status.cause
    assert said is not None
    assert said.reason == "EvictionByEvictionAPI"
    for pod in world.pods():
        world.delete("Pod", pod["metadata"]["name"])
    world.merge("Job", "demo-node-0", {"status": {"active": 0, "ready": 0, "failed": 1}})
    world.rest()
    assert world.status.cause == said
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": "jobset failed",
        "lastTransitionTime": at(9),
    }
    world.merge("JobSet", JOB, {"status": {"conditions": [failed]}})
    world.rest()
    assert (world.status.phase, world.status.cause) == ("Failed", said)


@pytest.mark.parametrize("reason", ["DefaultFailurePolicy", "RestartJobSetFailurePolicyAction"])
def test_what_job_set_did_about_a_failure_is_no_cause_between_two_attempts(reason: str) -> None:
    world = World(train_job(), runtime())
    world.rest()
    about = event("JobSet", JOB, reason, "restarting")
    world.put(build_object(msgspec.structs.replace(about, metadata=ObjectMeta(name="e", namespace="ns"))))
    world.rest()
    assert world.status.cause is None
