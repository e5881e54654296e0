"""Every trouble that a job can get into on a real node is named, and named the same until it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube.cluster import Cluster
from kube.node_tests.situations import (
    Observed,
    Situation,
    delete_pods,
    evict_pods,
    need_the_room,
    observe_all,
)
from trainwright.api.meta import Json
from trainwright.control.status import find_finished_condition

pytestmark = pytest.mark.timeout(600)  # the first pays for the cluster and for all situations

SLEEP = {"command": ["sleep", "300"]}


def shell(script: str) -> Json:
    return {"command": ["sh", "-c", script]}


def python(script: str) -> Json:
    return {"command": ["python3", "-c", script]}


def v1(kind: str, spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "limits"}, "spec": spec}


# Where the pods do not come to be.
REFUSED = {
    "the quota is full": Situation(
        "Job",
        "Job",
        "QuotaExceeded",
        ("exceeded quota: limits, requested: pods=1, used: pods=0, limited: pods=0",),
        container=SLEEP,
        objects=(v1("ResourceQuota", {"hard": {"pods": "0"}}),),
    ),
    "a quota counts what the pod does not name": Situation(
        "Job",
        "Job",
        "QuotaNeedsRequests",
        ("failed quota: limits: must specify requests.cpu for: node",),
        container=SLEEP,
        objects=(v1("ResourceQuota", {"hard": {"requests.cpu": "4"}}),),
    ),
    "more than the limit range allows": Situation(
        "Job",
        "Job",
        "LimitRangeViolated",
        ("must be less than or equal to cpu limit of 1",),
        container={**SLEEP, "resources": {"requests": {"cpu": "2"}}},
        objects=(v1("LimitRange", {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}),),
    ),
    "more than the limit range allows, with a limit": Situation(
        "Job",
        "Job",
        "LimitRangeViolated",
        ("maximum cpu usage per Container is 1, but limit is 2",),
        container={**SLEEP, "resources": {"limits": {"cpu": "2"}}},
        objects=(v1("LimitRange", {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}),),
    ),
    "the namespace restricts pods": Situation(
        "Job",
        "Job",
        "PodSecurityViolated",
        ('violates PodSecurity "restricted:latest"', "allowPrivilegeEscalation != false"),
        container=SLEEP,
        labels={"pod-security.kubernetes.io/enforce": "restricted"},
    ),
    "the service account is missing": Situation(
        "Job",
        "Job",
        "ServiceAccountNotFound",
        ('serviceaccount "nobody" not found',),
        container=SLEEP,
        pod={"serviceAccountName": "nobody"},
    ),
    "the job set's name is too long": Situation(
        "JobSet",
        "JobSet",
        "Invalid",
        ('admission webhook "vjobset.kb.io" denied the request',),
        container=SLEEP,
        name="a" * 56,
    ),
    "the pod template is invalid": Situation(
        "JobSet",
        "JobSet",
        "JobCreationFailed",
        ('volumeMounts[0].name: Not found: "nothing"',),
        container={**SLEEP, "volumeMounts": [{"name": "nothing", "mountPath": "/nothing"}]},
    ),
}

# Where they wait.
WAITING = {
    "the image's host is unknown": Situation(
        "Container",
        "Pod",
        "ImagePullBackOff",
        ("container node: ", "registry.invalid", "no such host"),
        container={"image": "registry.invalid/train:1"},
    ),
    "the image's registry does not answer": Situation(
        "Container",
        "Pod",
        "ImagePullBackOff",
        ("127.0.0.1:1: connect: connection refused",),
        container={"image": "127.0.0.1:1/train:1"},
    ),
    "the image's name is malformed": Situation(
        "Container",
        "Pod",
        "InvalidImageName",
        ('couldn\'t parse image name "Train:::1"',),
        container={"image": "Train:::1"},
    ),
    "the image is not there and never pulled": Situation(
        "Container",
        "Pod",
        "ErrImageNeverPull",
        ('Container image "registry.invalid/train:1" is not present with pull policy of Never',),
        container={"image": "registry.invalid/train:1", "imagePullPolicy": "Never"},
    ),
    "the node selector fits nothing": Situation(
        "Pod",
        "Pod",
        "Unschedulable",
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",),
        container=SLEEP,
        pod={"nodeSelector": {"accelerator": "none"}},
    ),
    "more processors than any node has": Situation(
        "Pod",
        "Pod",
        "Unschedulable",
        ("1 Insufficient cpu",),
        container={**SLEEP, "resources": {"requests": {"cpu": "1000"}}},
    ),
    "the claim does not exist": Situation(
        "Pod",
        "Pod",
        "Unschedulable",
        ('persistentvolumeclaim "data" not found',),
        container=SLEEP,
        pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ),
    "somebody holds the scheduling back": Situation(
        "Pod",
        "Pod",
        "SchedulingGated",
        (),
        container=SLEEP,
        pod={"schedulingGates": [{"name": "example.com/topology"}]},
    ),
    "the config map of the environment is missing": Situation(
        "Container",
        "Pod",
        "CreateContainerConfigError",
        ('configmap "settings" not found',),
        container={**SLEEP, "envFrom": [{"configMapRef": {"name": "settings"}}]},
    ),
    "the secret of the environment is missing": Situation(
        "Container",
        "Pod",
        "CreateContainerConfigError",
        ('secret "token" not found',),
        container={
            **SLEEP,
            "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}],
        },
    ),
    "the secret of a volume is missing": Situation(
        "Pod",
        "Pod",
        "FailedMount",
        ('MountVolume.SetUp failed for volume "keys" : secret "keys" not found',),
        container={**SLEEP, "volumeMounts": [{"name": "keys", "mountPath": "/keys"}]},
        pod={"volumes": [{"name": "keys", "secret": {"secretName": "keys"}}]},
    ),
    "the program is started again in place": Situation(
        "Container",
        "Pod",
        "CrashLoopBackOff",
        ("container node exited with code 3 (failed 3 times, restarted in place)",),
        container=shell("exit 3"),
        pod={"restartPolicy": "OnFailure"},
        job={"backoffLimit": 6},
        failures=3,
    ),
    "the executable is not there, and is tried again in place": Situation(
        "Container",
        "Pod",
        "StartError",
        ("could not be started (exit code 128) (failed 2 times, restarted in place)", '"deepspeed"'),
        container={"command": ["deepspeed", "train.py"]},
        pod={"restartPolicy": "OnFailure"},
        job={"backoffLimit": 6},
        failures=2,
    ),
}

# Where they end.
FAILING = {
    "the program exits with an error": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("(node, rank 0): container node exited with code 3; last log lines:\nout of luck",),
        "FailedJobs",
        container=shell("echo out of luck; exit 3"),
    ),
    "the program raises": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("exited with code 1", "Traceback (most recent call last)", "ValueError: no such batch"),
        "FailedJobs",
        container=python("raise ValueError('no such batch')"),
    ),
    "the script is not there": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("exited with code 2", "can't open file '/train.py'"),
        "FailedJobs",
        container={"command": ["python3", "/train.py"]},
    ),
    "the last restart is used up": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("exited with code 3",),
        "ReachedMaxRestarts",
        container=shell("exit 3"),
        job_set={"failurePolicy": {"maxRestarts": 1}},
        goes_on=True,
    ),
    "one rank of two fails": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("(node, rank 1): container node exited with code 5",),
        "FailedJobs",
        container=shell("if [ $JOB_COMPLETION_INDEX = 1 ]; then sleep 2; exit 5; fi; exec sleep 300"),
        train_job={"trainer": {"numNodes": 2}},
    ),
    "the memory runs out": Situation(
        "Container",
        "Pod",
        "OOMKilled",
        ("container node ran out of memory (OOMKilled, exit code 137)",),
        "FailedJobs",
        # So much that its end takes a while: what the runtime hears of the memory after the end is too late.
        container={**python("b'x' * (1 << 30)"), "resources": {"limits": {"memory": "256Mi"}}},
    ),
    "the memory of a child process runs out": Situation(
        "Container",
        "Pod",
        "OOMKilled",
        ("container node ran out of memory (OOMKilled, exit code 1)",),
        "FailedJobs",
        container={
            # The runtime hears of the memory a moment after the child's end, and too late after its own.
            **shell("python3 -c \"b'x' * (256 << 20)\" || { sleep 1; exit 1; }"),
            "resources": {"limits": {"memory": "64Mi"}},
        },
    ),
    "the program has a segmentation fault": Situation(
        "Container",
        "Pod",
        "SegmentationFault",
        ("was ended by SIGSEGV (exit code 139)",),
        "FailedJobs",
        container=python("import ctypes; ctypes.string_at(0)"),
    ),
    "the executable is not there": Situation(
        "Container",
        "Pod",
        "StartError",
        ("could not be started (exit code 128)", 'exec: "deepspeed": executable file not found in $PATH'),
        "FailedJobs",
        container={"command": ["deepspeed", "train.py"]},
    ),
    "the shell does not find the command": Situation(
        "Container",
        "Pod",
        "CommandNotFound",
        ("exited with code 127 (command not found)", "deepspeed: not found"),
        "FailedJobs",
        container=shell("deepspeed train.py"),
    ),
    "more is written to the disk than allowed": Situation(
        "Pod",
        "Pod",
        "Evicted",
        ("ephemeral local storage usage exceeds the total limit of containers 10Mi",),
        "FailedJobs",
        container={
            **shell("dd if=/dev/zero of=/big bs=1M count=32 && exec sleep 300"),
            "resources": {"limits": {"ephemeral-storage": "10Mi"}},
        },
    ),
    "the initializer fails": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("(dataset-initializer, rank 0): container dataset-initializer exited with code 7",),
        "FailedJobs",
        container=SLEEP,
        initializer=shell("exit 7"),
    ),
    "an init container fails": Situation(
        "Container",
        "Pod",
        "NonZeroExit",
        ("init container prepare exited with code 9",),
        "FailedJobs",
        container=SLEEP,
        pod={"initContainers": [{"name": "prepare", "image": "trainwright.test/base:1", **shell("exit 9")}]},
    ),
    "the liveness probe fails": Situation(
        "Container",
        "Pod",
        "ProbeFailed",
        ("container node was ended by SIGKILL (exit code 137): Liveness probe failed",),
        "FailedJobs",
        container={
            **SLEEP,
            "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2},
        },
    ),
    "somebody deletes the pod": Situation(
        "Pod",
        "Pod",
        "PodDeleted",
        ("(node, rank 0) was deleted while it was needed",),
        "FailedJobs",
        container=SLEEP,
        pod={"terminationGracePeriodSeconds": 8},
        act=delete_pods,
    ),
    "the node is drained": Situation(
        "Pod",
        "Pod",
        "EvictionByEvictionAPI",
        ("EvictionByEvictionAPI: Eviction API: evicting",),
        "FailedJobs",
        container=SLEEP,
        act=evict_pods,
    ),
    "a pod of a higher priority needs the room": Situation(
        "Pod",
        "Pod",
        "PreemptionByScheduler",
        ("PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod",),
        "FailedJobs",
        container={**SLEEP, "resources": {"requests": {"cpu": "600m"}}},
        act=need_the_room,
    ),
    "the restarts in place are used up": Situation(
        "Container",
        "Pod",
        "CrashLoopBackOff",
        ("container node exited with code 3 (failed ", "restarted in place)"),
        "FailedJobs",
        container=shell("exit 3"),
        pod={"restartPolicy": "OnFailure"},
        job={"backoffLimit": 1},
    ),
    "the deadline passes": Situation(
        "TrainJob",
        "TrainJob",
        "DeadlineExceeded",
        ("the job did not end within activeDeadlineSeconds (6 s)",),
        "DeadlineExceeded",
        container=SLEEP,
        train_job={"activeDeadlineSeconds": 6},
    ),
}

MOST_STATUS_WRITES_OF_AN_ATTEMPT = 9

SITUATIONS = {**REFUSED, **WAITING, **FAILING}


@pytest.fixture(scope="module")
def observed(
    request: pytest.FixtureRequest, real_cluster: Cluster, make_namespaces: Callable[..., str]
) -> dict[str, Observed]:
    """What came of the situations that were asked for."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    }
    return observe_all(
        real_cluster,
        {name: situation for name, situation in SITUATIONS.items() if name in wanted},
        make_namespaces,
    )


each_situation = pytest.mark.parametrize("name", list(SITUATIONS))


@each_situation
def test_the_cause_is_named_where(name: str, observed: dict[str, Observed]) -> None:
    expected, found = SITUATIONS[name], observed[name]
    cause = found.status.cause
    assert cause is not None, found
    assert (cause.layer, cause.kind, cause.reason) == (expected.layer, expected.kind, expected.reason), found
    # One that fails again and again goes on to do so while others come to rest.
    told = [each.message for each in found.causes if each] if expected.failures else [cause.message]
    for piece in expected.message:
        assert any(piece in message for message in told), told
    assert cause.message == cause.message.strip()
    finished = find_finished_condition(found.status)
    assert (finished.reason if finished else None) == expected.failed


@each_situation
def test_whoever_looks_earlier_is_told_the_same_where(name: str, observed: dict[str, Observed]) -> None:
    expected, found = SITUATIONS[name], observed[name]
    told = [step for step in found.trail if not (step is None and expected.goes_on)]
    assert set(told) == {(expected.layer, expected.reason)}, found.causes


@each_situation
def test_few_statuses_are_written_where(name: str, observed: dict[str, Observed]) -> None:
    """The first, the pods at work, the cause, each change of JobSet's counters, and the end.

    A failure in place is counted, and JobSet counts the Job as ready, and as not ready.
    """
    expected = SITUATIONS[name]
    most = MOST_STATUS_WRITES_OF_AN_ATTEMPT * (2 if expected.goes_on else 1) + 3 * expected.failures
    assert observed[name].status_writes <= most, observed[name]
