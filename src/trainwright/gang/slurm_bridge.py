"""Slurm Bridge: what the Slurm job is to be, on the PodGroup that becomes one.

Slurm Bridge is a scheduler that lets Slurm choose the nodes: pods of one PodGroup, of coscheduling's or
Kubernetes' own kind, become one Slurm job. Without a PodGroup each pod of a JobSet is a job by itself. What
the job is to be (partition, account, time limit, ...) is said by annotations. For coscheduling it reads those
of the PodGroup alone, so they are passed on from where a runtime or a patch can say them: the JobSet's
metadata.

Source: documentation of Slurm Bridge, "Workloads".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ANNOTATION_PREFIX: Final = "slurmjob.slinky.slurm.net/"


def pick_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that are about the Slurm job."""
    return {name: value for name, value in annotations.items() if name.startswith(ANNOTATION_PREFIX)}
