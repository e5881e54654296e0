"""Names and addresses of what a JobSet becomes (spec 02, section 14.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.jobset import JobSet, ReplicatedJob

# Kubernetes leaves out vowels and what looks alike, so that no name becomes a word.
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH: Final = 5


def build_job_name(job_set: str, replicated_job: str, job_index: int) -> str:
    """Return the name of a child Job."""
    return f"{job_set}-{replicated_job}-{job_index}"


def build_claim_name(claim: str, job_set: str) -> str:
    """Return the name of the PersistentVolumeClaim that a volume claim policy makes."""
    return f"{claim}-{job_set}"


def get_subdomain(job_set: JobSet) -> str:
    """Return the domain of the JobSet's host names: the one it names, else its own name."""
    network = job_set.spec.network
    return (network.subdomain if network else None) or job_set.metadata.name


def get_pod_count(replicated_job: ReplicatedJob) -> int:
    """Return how many pods one Job of this replicated job has at once: min(parallelism, completions)."""
    spec = replicated_job.template.get("spec") or {}
    parallelism = spec.get("parallelism")
    completions = spec.get("completions")
    return min(
        value for value in (1 if parallelism is None else parallelism, completions) if value is not None
    )


def iterate_jobs(job_set: JobSet) -> Iterator[tuple[ReplicatedJob, int, str]]:
    """Yield replicated job, job index and name of every child Job, in the order of the spec."""
    for replicated_job in job_set.spec.replicated_jobs:
        for index in range(replicated_job.replicas):
            yield replicated_job, index, build_job_name(job_set.metadata.name, replicated_job.name, index)


def iterate_hosts(job_set: JobSet) -> Iterator[tuple[ReplicatedJob, str]]:
    """Yield the host name of every pod of a JobSet: by replicated job, then Job, then completion index."""
    for replicated_job, _, name in iterate_jobs(job_set):
        spec = replicated_job.template.get("spec") or {}
        count = spec.get("completions")
        if count is None:
            count = get_pod_count(replicated_job)
        for index in range(count):
            yield replicated_job, f"{name}-{index}"


def build_host_names(job_set: JobSet) -> tuple[str, ...]:
    """Return the host names of all pods of a JobSet, in order."""
    return tuple(host for _, host in iterate_hosts(job_set))
