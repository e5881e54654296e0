"""The ssh keys of a job: one pair, made for it, in all of its pods (spec 02 section 6.3, case B073).

All pods of a job share the pair, which lives as long as the job. What it opens is those pods alone.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
    MPI_SSH_SUFFIX,
    SSH_AUTH_SECRET_TYPE,
    SSH_KEY_GENERATOR,
    SSH_PRIVATE_KEY,
    SSH_PUBLIC_KEY,
)
from trainwright.api.meta import Json
from trainwright.frameworks.contract import GeneratedSecret
from trainwright.frameworks.mpi.nodes import get_policy
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet

_VOLUME: Final = "mpi-ssh-auth"
_DEFAULT_MOUNT: Final = "/root/.ssh"
_ROOTS_HOME: Final = "/root"


def build_secret(layout: JobLayout) -> GeneratedSecret:
    """Return the Secret with the keys of the job."""
    return GeneratedSecret(
        name=_get_secret_name(layout), generator=SSH_KEY_GENERATOR, type=SSH_AUTH_SECRET_TYPE
    )


def build_volume(layout: JobLayout, container: Json, pod_set: PodSet) -> Json:
    """Return the volume with the keys, as ssh and sshd want to find them.

    ssh refuses a private key of its own user that others may read. The files are root's; so root's key is
    for root alone. Other users get at theirs through the group, which `fsGroup` makes their own.
    """
    private_mode = 0o600 if runs_as_root(layout, container, pod_set) else 0o640
    return {
        "name": _VOLUME,
        "secret": {
            "secretName": _get_secret_name(layout),
            "defaultMode": 0o400,
            "items": [
                {"key": SSH_PRIVATE_KEY, "path": "id_rsa", "mode": private_mode},
                {"key": SSH_PUBLIC_KEY, "path": "id_rsa.pub", "mode": 0o644},
                {"key": SSH_PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
            ],
        },
    }


def build_volume_mount(layout: JobLayout) -> Json:
    """Return the mount of the keys."""
    return {"name": _VOLUME, "mountPath": get_mount_path(layout)}


def get_mount_path(layout: JobLayout) -> str:
    """Return where the keys are: the `.ssh` of the user that the image runs as."""
    return get_policy(layout).ssh_auth_mount_path or _DEFAULT_MOUNT


def get_user(container: Json, pod_set: PodSet) -> int | None:
    """Return the user id of the container, None where only its image knows."""
    for context in (container.get("securityContext"), pod_set.pod_spec.get("securityContext")):
        user: int | None = (context or {}).get("runAsUser")
        if user is not None:
            return user
    return None


def runs_as_root(layout: JobLayout, container: Json, pod_set: PodSet) -> bool:
    """Say whether the container runs as root: it says so, or keys go to root's home."""
    user = get_user(container, pod_set)
    if user is not None:
        return user == 0
    path = get_mount_path(layout)
    return path == _ROOTS_HOME or path.startswith(f"{_ROOTS_HOME}/")


def _get_secret_name(layout: JobLayout) -> str:
    return f"{layout.job_name}{MPI_SSH_SUFFIX}"
