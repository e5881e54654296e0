"""How long does it take to decide about one TrainJob: one that is new, idle, queued or finished?

Data: a torch job of 4 nodes with its snapshot, JobSet, Job and 4 pods, as the caches hold them; the same with
1,000 nodes, whose pods are looked through for trouble. Baseline: for the new job, rendering it alone; for all
others, decoding what was seen once from JSON, as whoever reads it from a watch does. Bias: the structs are
there already, as in the operator's caches, and nothing is sent; a single status write costs an API server
2.9 ms of CPU, many times all of this. Decoding is C code of msgspec, ours is Python.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from measure import Figure, best_of, show
from trainwright.api.batch import Job, JobSpec, JobStatus
from trainwright.api.constants import COMPLETION_INDEX, JOB_INDEX, REPLICATED_JOB_NAME
from trainwright.api.core import ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodStatus
from trainwright.api.jobset import JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.api.meta import Condition, ObjectMeta
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.control import Seen, decide
from trainwright.control.actions import PatchStatus
from trainwright.render import render_job_set
from trainwright.runtimes import load_shipped_runtimes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNTIME = load_shipped_runtimes()["torch-distributed"]


def measure() -> list[Figure]:
    """Time one decision in each state of a job."""
    new = Seen(train_job=build_job(4), runtime=RUNTIME, snapshot=RUNTIME)
    queued = settle(msgspec.structs.replace(new, train_job=build_job(4, suspend=True)))
    idle, large = build_running(4), build_running(1000)
    return [
        Figure(
            name="decide: a new job",
            ours=best_of(7, lambda: decide(new, NOW), number=50),
            baseline_name="rendering it",
            baseline=best_of(7, lambda: render_job_set(new.train_job, RUNTIME), number=50),
            limit=0.003,
        ),
        build_figure("decide: queued, nothing to do", queued, limit=0.0005),
        build_figure("decide: running, 4 pods, nothing to do", idle, limit=0.0005),
        build_figure("decide: running, 1,000 pods, nothing to do", large, limit=0.05),
        build_figure("decide: just finished", complete(idle), limit=0.0005),
        build_figure("decide: finished before", settle(complete(idle)), limit=0.0005),
    ]


def build_figure(name: str, seen: Seen, *, limit: float) -> Figure:
    """Time the decision against decoding what it looks at."""
    text = msgspec.json.encode(
        [seen.train_job, *([seen.job_set] if seen.job_set else []), *seen.jobs, *seen.pods]
    )
    number = 5 if len(seen.pods) > 100 else 200
    return Figure(
        name=name,
        ours=best_of(7, lambda: decide(seen, NOW), number=number),
        baseline_name="decoding it from JSON",
        baseline=best_of(7, lambda: msgspec.json.decode(text), number=number),
        limit=limit,
    )


def build_job(num_nodes: int, *, suspend: bool = False) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(name="demo", namespace="team-a", uid="u-1", generation=1),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name="torch-distributed"),
            trainer=Trainer(num_nodes=num_nodes, command=["torchrun", "train.py"]),
            suspend=suspend,
        ),
    )


def build_running(num_nodes: int) -> Seen:
    """A job that runs on so many nodes, its status written."""
    job = build_job(num_nodes)
    job_set = msgspec.convert(render_job_set(job, RUNTIME), JobSet)
    counters = ReplicatedJobStatus(name="node", ready=1, succeeded=0, failed=0, active=1, suspended=0)
    job_set = msgspec.structs.replace(
        job_set,
        metadata=msgspec.structs.replace(job_set.metadata, uid="u-2", generation=1),
        status=JobSetStatus(replicated_jobs_status=[counters]),
    )
    labels = {REPLICATED_JOB_NAME: "node", JOB_INDEX: "0"}
    child = Job(
        metadata=ObjectMeta(name="demo-node-0", namespace="team-a", uid="u-3", labels=labels),
        spec=JobSpec(template={}, parallelism=num_nodes, completions=num_nodes),
        status=JobStatus(active=num_nodes, ready=num_nodes),
    )
    running = ContainerStatus(
        name="node", ready=True, state=ContainerState(running=ContainerStateRunning(started_at=NOW))
    )
    pods = tuple(
        Pod(
            metadata=ObjectMeta(
                name=f"demo-node-0-{rank}-abcde",
                namespace="team-a",
                uid=f"p-{rank}",
                labels={**labels, COMPLETION_INDEX: str(rank)},
            ),
            status=PodStatus(phase="Running", container_statuses=[running]),
        )
        for rank in range(num_nodes)
    )
    seen = Seen(train_job=job, runtime=RUNTIME, snapshot=RUNTIME, job_set=job_set, jobs=(child,), pods=pods)
    return settle(seen)


def settle(seen: Seen) -> Seen:
    """Return what is seen once the decided status is written."""
    for action in decide(seen, NOW):
        if isinstance(action, PatchStatus):
            seen = msgspec.structs.replace(
                seen, train_job=msgspec.structs.replace(seen.train_job, status=action.status)
            )
    assert not [action for action in decide(seen, NOW) if isinstance(action, PatchStatus)]
    return seen


def complete(seen: Seen) -> Seen:
    """Return the same with the JobSet completed."""
    assert seen.job_set is not None
    assert seen.job_set.status is not None
    done = Condition(
        type="Completed",
        status="True",
        reason="AllJobsCompleted",
        message="jobset completed successfully",
        last_transition_time=NOW,
    )
    status = msgspec.structs.replace(seen.job_set.status, conditions=[done])
    return msgspec.structs.replace(seen, job_set=msgspec.structs.replace(seen.job_set, status=status))


if __name__ == "__main__":
    print(__doc__)
    show(measure())
