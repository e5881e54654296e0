"""Pod sets: for each replicated job of a TrainJob, how many pods there are and where they are reached.

Counts and addresses are the same for admission (the longest derived name), for frameworks (ranks, the
address of rank 0) and for the JobSet that is rendered. Source: spec 01 section 5.2 (E, I), spec 02 sections
2.4, 2.5, 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainwright.api.constants import ANCESTOR_CONTAINERS
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.template.merged import build_merged_template
from trainwright.template.replicated_jobs import (
    find_container,
    get_ancestor,
    get_job_spec,
    get_pod_spec,
    list_replicated_jobs,
)
from trainwright.template.steps import Step, list_steps


class PodSet(msgspec.Struct, frozen=True, kw_only=True):
    """One replicated job, as its pods are counted.

    `replicas` is the number of Jobs: for the steps of a TrainJob (those with a known ancestor label, and the
    launcher of an MPI job) that of slices, else 1. `count` is the number of pods of each Job that run at a
    time, `completions` that of its indexes; they differ only where a template that is no training step says
    so. `completions` is None for a Job without indexes (completionMode NonIndexed) that ends with its first
    success. Without indexes pods have neither ranks nor host names. `pod_spec` is the core/v1 PodSpec with
    patches and resources merged; it is read, never changed.
    """

    name: str
    ancestor: str | None
    replicas: int
    count: int
    completions: int | None
    has_indexes: bool = True
    pod_spec: Json

    @property
    def num_nodes(self) -> int:
        """How many pods of all its Jobs run at a time: for the step that trains, the number of nodes."""
        return self.replicas * self.count

    @property
    def containers(self) -> list[Json]:
        """The containers, without init containers, in order."""
        return self.pod_spec.get("containers") or []

    @property
    def init_containers(self) -> list[Json]:
        """The init containers, in order."""
        return self.pod_spec.get("initContainers") or []

    def find_container(self, name: str) -> Json | None:
        """Return the container of that name; containers are searched before init containers."""
        return find_container(self.pod_spec, name)


def build_pod_sets(runtime_spec: RuntimeSpec, job: TrainJob) -> tuple[PodSet, ...]:
    """Return the pod sets of a TrainJob, one for each replicated job of its runtime and in that order."""
    num_nodes = job.spec.trainer.num_nodes if job.spec and job.spec.trainer else None
    return count_pods(build_merged_template(runtime_spec, job).spec, runtime_spec.ml_policy, num_nodes)


def count_pods(spec: Json | None, policy: MLPolicy | None, num_nodes: int | None) -> tuple[PodSet, ...]:
    """Return the pod sets of a JobSet spec in which patches and resources are merged.

    The steps that train have the number of nodes, the TrainJob's `num_nodes` or the policy's
    (`template.steps`). Every other count is the template's.
    """
    steps = list_steps(spec, policy, num_nodes)
    return tuple(
        _build_pod_set(replicated_job, step)
        for replicated_job, step in zip(list_replicated_jobs(spec), steps, strict=True)
    )


def build_subdomain(spec: Json | None, job_name: str) -> str:
    """Return the subdomain of a TrainJob's pods: that of the JobSet's network, else the TrainJob's name."""
    subdomain = ((spec or {}).get("network") or {}).get("subdomain")
    return subdomain or job_name


def build_endpoint(
    job_name: str, pod_set: PodSet, subdomain: str, *, replica: int | str = 0, index: int | str = 0
) -> str:
    """Return the address of one pod within its namespace; by default that of the first (rank 0).

    Replica and index may be references, `$(NAME)`, that Kubernetes replaces in each pod by its own.
    """
    return f"{job_name}-{pod_set.name}-{replica}-{index}.{subdomain}"


def iterate_endpoints(job_name: str, pod_set: PodSet, subdomain: str) -> Iterator[str]:
    """Yield the address of every pod of a pod set, by replica and then by index.

    Addresses are made as they are asked for: 10,000 of them cost nothing where nobody does.
    """
    indexes = pod_set.count if pod_set.completions is None else pod_set.completions
    for replica in range(pod_set.replicas):
        for index in range(indexes):
            yield build_endpoint(job_name, pod_set, subdomain, replica=replica, index=index)


def _build_pod_set(replicated_job: Json, step: Step) -> PodSet:
    ancestor = get_ancestor(replicated_job)
    job_spec = get_job_spec(replicated_job)
    count = max(job_spec.get("parallelism") or 1, 1) if step.count is None else step.count
    completions: int | None = job_spec.get("completions") if step.count is None else step.count
    has_indexes = job_spec.get("completionMode") != "NonIndexed"
    if completions is None and has_indexes:
        completions = count  # an Indexed Job, which JobSet makes of it, must have a number of completions
    replicas = replicated_job.get("replicas")
    if replicas is None or ancestor in ANCESTOR_CONTAINERS or step.runs_command:
        replicas = 1
    if step.nodes_per_slice is not None and count >= step.nodes_per_slice:
        replicas, count = count // step.nodes_per_slice, step.nodes_per_slice
        completions = count
    return PodSet(
        name=replicated_job["name"],
        ancestor=ancestor,
        replicas=replicas,
        count=count,
        completions=completions,
        has_indexes=has_indexes,
        pod_spec=get_pod_spec(replicated_job),
    )
