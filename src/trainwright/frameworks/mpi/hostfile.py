"""The list of hosts that mpirun reads, mounted into the launcher at `/etc/mpi` (spec 02 section 6.4).

There are two forms, which exclude each other: Open MPI 4 wants `host slots=2` and knows no other, Hydra
(MPICH, Intel MPI) wants `host:2` and ends with an error at `slots=`. Both are there. `hostfile` has that of
the runtime's implementation, for whoever names it on a command line.

A ConfigMap holds 1 MiB. A longer list is cut into several, which an init container in the launcher's own
image puts together again, so that a job of any number of nodes starts (case R04).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from trainwright.api.constants import MPI_HOSTFILE_SUFFIX
from trainwright.api.meta import Json

HOSTFILE_MOUNT: Final = "/etc/mpi"
# What a ConfigMap of ours may hold. The API server allows 1 MiB of data, and etcd not much more for the
# whole object as JSON, in which every line end counts twice.
MAX_PART_BYTES: Final = 1_000_000

OPEN_MPI: Final = "OpenMPI"
HYDRA: Final = "Hydra"
# Form -> what stands between host and number of ranks.
_SEPARATORS: Final = {OPEN_MPI: " slots=", HYDRA: ":"}

_VOLUME: Final = "mpi-hostfile"
_PARTS_VOLUME: Final = "mpi-hostfile-parts"
_PARTS_MOUNT: Final = "/etc/mpi-parts"
_HOSTFILE_MODE: Final = 0o444


class Hostfile(msgspec.Struct, frozen=True, kw_only=True):
    """The hostfile as it is stored, and as the launcher mounts it."""

    objects: tuple[Json, ...]
    volumes: tuple[Json, ...]
    init_containers: tuple[Json, ...] = ()

    @property
    def volume_mounts(self) -> tuple[Json, ...]:
        """The mount of the container that runs mpirun."""
        return ({"name": _VOLUME, "mountPath": HOSTFILE_MOUNT},)


def get_file_name(form: str, main_form: str) -> str:
    """Return the name of the file in this form, where `main_form` is that of `hostfile`."""
    return "hostfile" if form == main_form else f"hostfile-{form.lower()}"


def build_hostfile(
    job_name: str, hosts: Mapping[str, Sequence[str]], slots: int, main_form: str, launcher: Json
) -> Hostfile:
    """Return the hostfile of the hosts, which are in rank order, as many for each form.

    `launcher` is the container that runs mpirun: a list in parts is joined in its image, with its
    resources and its user.
    """
    name = f"{job_name}{MPI_HOSTFILE_SUFFIX}"
    files = {get_file_name(form, main_form): f"{separator}{slots}\n" for form, separator in _order(main_form)}
    ordered = {get_file_name(form, main_form): hosts[form] for form, _ in _order(main_form)}
    longest = max((len(host) for listed in ordered.values() for host in listed), default=0)
    per_part = max(MAX_PART_BYTES // sum(longest + len(end) + 1 for end in files.values()), 1)
    count = len(hosts[main_form])
    if count <= per_part:
        return Hostfile(
            objects=(_build_config_map(name, ordered, files),),
            volumes=({"name": _VOLUME, "configMap": {"name": name, "items": _list_items(files)}},),
        )
    parts = [
        {file: listed[start : start + per_part] for file, listed in ordered.items()}
        for start in range(0, count, per_part)
    ]
    return Hostfile(
        objects=tuple(_build_config_map(f"{name}-{i}", part, files) for i, part in enumerate(parts)),
        volumes=(
            {"name": _VOLUME, "emptyDir": {}},
            {
                "name": _PARTS_VOLUME,
                "projected": {
                    "sources": [
                        {"configMap": {"name": f"{name}-{i}", "items": _list_items(files, f"{i:04}/")}}
                        for i in range(len(parts))
                    ]
                },
            },
        ),
        init_containers=(_build_joiner(launcher, files),),
    )


def _order(main_form: str) -> list[tuple[str, str]]:
    """Return forms and separators, that of `hostfile` first."""
    return sorted(_SEPARATORS.items(), key=lambda item: item[0] != main_form)


def _build_config_map(name: str, hosts: Mapping[str, Sequence[str]], files: dict[str, str]) -> Json:
    # Joined at once: a line for each of 10,000 nodes, twice, takes longer than all the rest of a render.
    data = {file: end.join(hosts[file]) + (end if hosts[file] else "") for file, end in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _list_items(files: dict[str, str], folder: str = "") -> list[Json]:
    return [{"key": file, "path": f"{folder}{file}", "mode": _HOSTFILE_MODE} for file in files]


def _build_joiner(launcher: Json, files: dict[str, str]) -> Json:
    """Return the init container that joins the parts: their folders sort as they were numbered.

    It asks for what the launcher asks for, and runs as it: a pod needs the larger of the two anyway, and a
    namespace may demand that every container says so.
    """
    kept = ("image", "imagePullPolicy", "resources", "securityContext")
    joins = [f"cat {_PARTS_MOUNT}/*/{file} > {HOSTFILE_MOUNT}/{file}" for file in files]
    return {
        **{field: launcher[field] for field in kept if field in launcher},
        "name": _VOLUME,
        "command": ["/bin/sh", "-c", " && ".join(joins)],
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": HOSTFILE_MOUNT},
            {"name": _PARTS_VOLUME, "mountPath": _PARTS_MOUNT, "readOnly": True},
        ],
    }
