"""Which pods of a JobSet train, and as which node. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.api.constants import ANCESTOR_LABEL, ANCESTOR_TRAINER
from trainwright.api.jobset import JobSet, ReplicatedJob
from trainwright.runner.controllers.names import iterate_hosts


def is_trainer_step(replicated_job: ReplicatedJob) -> bool:
    """Say whether a replicated job is the trainer step, or one of its parts: it is labelled so."""
    labels: Mapping[str, str] = (replicated_job.template.get("metadata") or {}).get("labels") or {}
    return labels.get(ANCESTOR_LABEL) == ANCESTOR_TRAINER


def find_node_rank(job_set: JobSet, host: str) -> int | None:
    """Return which training node the pod of a host name is, counted over all trainer steps; None if none."""
    nodes = [name for replicated_job, name in iterate_hosts(job_set) if is_trainer_step(replicated_job)]
    return nodes.index(host) if host in nodes else None
