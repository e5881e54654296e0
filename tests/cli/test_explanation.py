"""Why a job does what it does, in words."""

from datetime import UTC, datetime, timedelta

from trainwright.api.batch import Job, JobCondition, JobSpec, JobStatus
from trainwright.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Event,
    ObjectReference,
    Pod,
    PodStatus,
)
from trainwright.api.jobset import JobSet, JobSetStatus
from trainwright.api.kueue import Workload, WorkloadCondition, WorkloadSpec, WorkloadStatus
from trainwright.api.meta import Condition, ObjectMeta
from trainwright.api.trainjob import (
    Cause,
    RuntimeRef,
    RuntimeSnapshotRef,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from trainwright.cli.explanation import Chain, Finding, format_explanation, list_findings

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def condition(kind, reason, *, status="True", message="") -> Condition:
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=NOW - timedelta(seconds=12),
    )


def job(status: TrainJobStatus | None = None, *, suspend=None) -> TrainJob:
    spec = TrainJobSpec(runtime_ref=RuntimeRef(name="torch-distributed"), suspend=suspend)
    return TrainJob(metadata=ObjectMeta(name="digits", namespace="default"), spec=spec, status=status)


def pod(name, phase, *containers) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name), status=PodStatus(phase=phase, container_statuses=list(containers))
    )


FAILED = Chain(
    train_job=job(
        TrainJobStatus(
            phase="Failed",
            conditions=[condition("Failed", "FailedJobs")],
            runtime_snapshot=RuntimeSnapshotRef(name="torch-distributed", hash="0123"),
            cause=Cause(
                layer="Container",
                kind="Pod",
                name="digits-node-0-1-8fk2p",
                reason="NonZeroExit",
                message="exit code 1\nModuleNotFoundError: \x1b[31mno sklearn",
                hint="look at `trainwright logs digits --rank 1`",
                since=NOW,
            ),
        )
    ),
    job_set=JobSet(
        metadata=ObjectMeta(name="digits"),
        status=JobSetStatus(conditions=[condition("Failed", "FailedJobs")], restarts=2),
    ),
    jobs=(
        Job(
            metadata=ObjectMeta(name="digits-node-0"),
            spec=JobSpec(template={}),
            status=JobStatus(
                failed=2,
                conditions=[
                    JobCondition(type="FailureTarget", status="True"),
                    JobCondition(type="Failed", status="True", reason="BackoffLimitExceeded"),
                ],
            ),
        ),
    ),
    pods=(
        pod("digits-node-0-0-p2m9x", "Running", ContainerStatus(name="node")),
        pod(
            "digits-node-0-1-8fk2p",
            "Failed",
            ContainerStatus(
                name="node",
                state=ContainerState(terminated=ContainerStateTerminated(exit_code=1, reason="Error")),
            ),
        ),
    ),
    events=(
        Event(
            metadata=ObjectMeta(),
            involved_object=ObjectReference(kind="Job", name="digits-node-0"),
            type="Normal",
        ),
        Event(
            metadata=ObjectMeta(),
            involved_object=ObjectReference(kind="Job", name="digits-node-0"),
            type="Warning",
            reason="BackoffLimitExceeded",
            message="failed too often",
            count=3,
        ),
        Event(
            metadata=ObjectMeta(),
            involved_object=ObjectReference(kind="TrainJob", name="digits"),
            type="Warning",
            reason="NonZeroExit",
            message="what the cause says already",
        ),
    ),
    node="this machine; nothing of the job runs",
)


def test_a_failed_job_is_explained_from_the_train_job_down():
    assert format_explanation(FAILED, NOW) == (
        "digits: Failed, 12s ago\n"
        "cause:  Pod digits-node-0-1-8fk2p: NonZeroExit\n"
        "        exit code 1\n"
        "        ModuleNotFoundError: \\x1b[31mno sklearn\n"
        "to do:  look at `trainwright logs digits --rank 1`\n"
        "\n"
        "TrainJob   digits                 Failed: FailedJobs\n"
        "Runtime    torch-distributed      ClusterTrainingRuntime, as it was when the job began\n"
        "JobSet     digits                 Failed: FailedJobs, restarted 2 times\n"
        "Job        digits-node-0          Failed: BackoffLimitExceeded, 2 failed\n"
        "Pod        digits-node-0-1-8fk2p  Failed\n"
        "Container  node                   Error, exit code 1\n"
        "Pod        digits-node-0-0-p2m9x  Running\n"
        "Node       -                      this machine; nothing of the job runs\n"
        "\n"
        "warnings:\n"
        "  Job digits-node-0: BackoffLimitExceeded: failed too often (3 times)"
    )


def test_a_suspended_job_that_never_ran_says_how_to_go_on():
    status = TrainJobStatus(phase="Suspended", conditions=[condition("Suspended", "Suspended")])
    assert format_explanation(Chain(train_job=job(status, suspend=True)), NOW) == (
        "digits: Suspended, 12s ago\n"
        "cause:  the job is suspended: `trainwright resume digits` lets it run\n"
        "\n"
        "TrainJob  digits             Suspended\n"
        "Runtime   torch-distributed  ClusterTrainingRuntime, as it is; the job has not begun\n"
        "JobSet    -                  not made yet: the job is suspended"
    )


def test_a_job_in_a_queue_shows_what_the_queue_made_of_it():
    status = TrainJobStatus(
        phase="Queued",
        conditions=[condition("Suspended", "Suspended")],
        cause=Cause(
            layer="Queue",
            kind="Workload",
            name="trainjob-digits-1a2b3",
            reason="Preempted",
            message="LocalQueue 'team-a': Preempted to accommodate a workload",
            hint="it is queued again",
            since=NOW,
        ),
    )
    workload = Workload(
        metadata=ObjectMeta(name="trainjob-digits-1a2b3"),
        spec=WorkloadSpec(queue_name="team-a"),
        status=WorkloadStatus(
            conditions=[
                WorkloadCondition(type="QuotaReserved", status="False", reason="Pending"),
                WorkloadCondition(type="Evicted", status="True", reason="Preempted"),
                WorkloadCondition(type="Requeued", status="True", reason="Preempted"),
            ]
        ),
    )
    assert format_explanation(Chain(train_job=job(status, suspend=True), workload=workload), NOW) == (
        "digits: Queued, 12s ago\n"
        "cause:  Workload trainjob-digits-1a2b3: Preempted\n"
        "        LocalQueue 'team-a': Preempted to accommodate a workload\n"
        "to do:  it is queued again\n"
        "\n"
        "TrainJob  digits                 Suspended\n"
        "Runtime   torch-distributed      ClusterTrainingRuntime, as it is; the job has not begun\n"
        "Workload  trainjob-digits-1a2b3  in LocalQueue team-a, Evicted: Preempted, no quota reserved: "
        "Pending\n"
        "JobSet    -                      not made yet: the job is suspended"
    )


def test_a_job_that_was_admitted_shows_that():
    conditions = [
        WorkloadCondition(type=kind, status="True", reason=reason)
        for kind, reason in (("QuotaReserved", "QuotaReserved"), ("Admitted", "Admitted"))
    ]
    workload = Workload(
        metadata=ObjectMeta(name="w"),
        spec=WorkloadSpec(queue_name="q"),
        status=WorkloadStatus(conditions=conditions),
    )
    findings = list_findings(Chain(train_job=job(), workload=workload))
    assert Finding("Workload", "w", "in LocalQueue q, Admitted") in findings


def test_a_job_that_was_just_made_has_no_cause_yet():
    assert format_explanation(Chain(train_job=job()), NOW).startswith(
        "digits: Created\ncause:  none known; the job has just been made, or is starting\n"
    )


def test_a_waiting_container_says_what_it_waits_for():
    waiting = ContainerStatus(
        name="node",
        restart_count=2,
        state=ContainerState(
            waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 10s")
        ),
    )
    chain = Chain(
        train_job=job(),
        job_set=JobSet(metadata=ObjectMeta(name="digits")),
        pods=(pod("p", "Pending", waiting),),
    )
    assert list_findings(chain)[-2:] == [
        Finding("Pod", "p", "Pending"),
        Finding("Container", "node", "waiting: CrashLoopBackOff: back-off 10s, restarted 2 times"),
    ]


def test_of_many_pods_the_worst_are_shown_and_the_others_counted():
    pods = (*(pod(f"good-{number:03}", "Running") for number in range(30)), pod("zz-bad", "Failed"))
    chain = Chain(train_job=job(), job_set=JobSet(metadata=ObjectMeta(name="digits")), pods=pods)
    shown = [finding for finding in list_findings(chain) if finding.layer == "Pod"]
    assert shown[0] == Finding("Pod", "zz-bad", "Failed")
    assert shown[-1] == Finding("Pod", "...", "and 15 more")
    assert len(shown) == 17
