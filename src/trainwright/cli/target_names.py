"""Names of the places where jobs can run. Apart from the targets themselves, so that `--help` stays light."""

from __future__ import annotations

from enum import StrEnum


class TargetName(StrEnum):
    """Where jobs run."""

    LOCAL = "local"
    DOCKER = "docker"
    PODMAN = "podman"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
