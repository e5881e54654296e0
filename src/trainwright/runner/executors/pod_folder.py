"""What a pod has on disk: volumes, its /etc/hosts, its TMPDIR; and how a container gets to see it.

Everything lies in the pod's own folder of the state directory, with three exceptions that are written down
there first, so that `remove_leftovers` finds them after a crash: TMPDIR, whose path must be short (a
socket's path has 108 characters), the shared memory of an MPI pod, and mount points in places where people
keep data.

Without mount namespaces nothing can be mounted. Then the mount paths in arguments and variables are
replaced by where the volume really is; a path that no argument mentions is made a link to it, where there
is nothing yet and the user may make one; else the container waits and says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from trainwright.runner.executor import PodContext
from trainwright.runner.executors.channel import ContainerSetup
from trainwright.runner.executors.isolation import Isolation
from trainwright.runner.executors.mount_plan import (
    Mount,
    MountError,
    MountLayout,
    MountPoint,
    build_mount_operations,
)
from trainwright.runner.executors.mount_points import MountPoints, remove_unused
from trainwright.runner.executors.mpi_pod import SSH_AUTH_VOLUME, RemoteStart, build_client_environment
from trainwright.runner.executors.pod_plan import (
    CONFIG_ERROR,
    ContainerPlan,
    Obstacle,
    PodPlan,
    Volume,
    VolumeKind,
    VolumeMount,
)
from trainwright.runner.executors.remote_hosts import RemoteHosts

_RECORD: Final = "host-paths.json"
_LONGEST_TEMPORARY: Final = 40
# Programs take paths in variables apart at spaces and colons.
_PLAIN_PATH: Final = re.compile(r"/[\w./+-]*", re.ASCII)
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
# hostPath.type -> what must be there; the OrCreate types make it.
_HOST_TYPES: Final = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class CannotStart(Exception):
    """A container has to wait, for the reason that `obstacle` gives."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.obstacle = Obstacle(reason=reason, message=message)


class _HostPaths(msgspec.Struct):
    """What lies outside the pod's folder and has to go with it."""

    temporary: str
    shared_memory: str = ""
    # Where pods know of mount points that they share.
    known_mount_points: str = ""
    mount_points: list[MountPoint] = msgspec.field(default_factory=list)
    links: dict[str, str] = msgspec.field(default_factory=dict)


class PodFolder:
    """The folder of one pod while it runs."""

    def __init__(self, plan: PodPlan, context: PodContext, isolation: Isolation) -> None:
        self.path = context.folder
        self._plan = plan
        self._context = context
        self._isolation = isolation
        self._volumes = {volume.name: volume for volume in plan.volumes}
        self._mount_points = MountPoints(context.mount_points)
        self._host_paths = _HostPaths(
            temporary=str(_name_temporary(context, plan.uid)), known_mount_points=str(context.mount_points)
        )
        self.remote_hosts = RemoteHosts(context.shared_folder, plan.host_name)
        # Containers that start at once are set up in a thread each; a pod that is cancelled ends meanwhile.
        self._changing = threading.Lock()

    def prepare(self) -> None:
        """Make what all containers share. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_leftovers(self.path)
        (self.path / "began").touch()
        self._host_paths.shared_memory = self._choose_shared_memory()
        self._record()
        Path(self._host_paths.temporary).mkdir(mode=0o700)
        if self._host_paths.shared_memory:
            Path(self._host_paths.shared_memory).mkdir(mode=0o700)
        (self.path / "root").mkdir(exist_ok=True)
        if any(container.remote_start is not None for container in self._plan.containers):
            self.remote_hosts.prepare()
        with contextlib.suppress(OSError, UnicodeError):
            own = Path("/etc/hosts").read_text(errors="surrogateescape")
            (self.path / "hosts").write_text(self._plan.hosts + own, errors="surrogateescape")
        for volume in self._plan.volumes:
            folder = self.path / "volumes" / volume.name
            folder.mkdir(parents=True, exist_ok=True)
            if volume.kind in (VolumeKind.EMPTY, VolumeKind.MEMORY):
                folder.chmod(0o777)
            for file in volume.files:
                _write_file(folder, file.path, file.content, file.mode)

    def build_setup(self, container: ContainerPlan) -> ContainerSetup:
        """Return how to start a container. Raises CannotStart, OSError."""
        if container.obstacle is not None:
            raise CannotStart(container.obstacle.reason, container.obstacle.message)
        with self._changing:
            return self._build_setup(container)

    def read_termination_file(self, container: ContainerPlan) -> str:
        """Return what the container wrote to its terminationMessagePath, where that is not the default."""
        try:
            with self._termination_file(container).open("rb") as file:
                return file.read(4096).decode(errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        """Remove all but the logs."""
        with self._changing:
            self.remote_hosts.withdraw()
            self._mount_points.release()
            remove_leftovers(self.path)

    def _build_setup(self, container: ContainerPlan) -> ContainerSetup:
        moved = {} if self._isolation.mount else self._move_paths(container)
        inherited = self._context.environment
        environment = {
            # What was inherited speaks of the host's own paths.
            name: value if inherited.get(name) == value else _replace_paths(value, moved)
            for name, value in container.environment.items()
        }
        environment |= self._build_own_variables(container, environment)
        arguments = [_replace_paths(argument, moved) for argument in container.arguments]
        if container.remote_start is RemoteStart.SERVER:
            arguments = [*self.remote_hosts.build_server_command()]
        setup = ContainerSetup(
            isolation=self._isolation,
            argv=arguments,
            environment=environment,
            working_directory=_replace_paths(container.working_directory, moved),
        )
        if not self._isolation.mount:
            return setup
        return msgspec.structs.replace(
            setup, host_name=self._plan.host_name[:64], layout=self._build_layout(container)
        )

    def _choose_shared_memory(self) -> str:
        """Return the folder that the pod has as its /dev/shm, empty where it has the machine's.

        In a PID namespace every launcher is process 2, and Open MPI names its segments by host, process and
        rank: two jobs of one name at a time would write into each other's. And ranks that are killed leave
        theirs behind. Pods that share GPUs share shared memory too, which NCCL needs; they have no PID
        namespace of their own either.
        """
        is_mpi = any(container.remote_start is not None for container in self._plan.containers)
        if not (is_mpi and self._isolation.mount and self._isolation.pid and _SHARED_MEMORY.is_dir()):
            return ""
        return str(_SHARED_MEMORY / Path(self._host_paths.temporary).name)

    def _build_own_variables(
        self, container: ContainerPlan, environment: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the variables that lead to paths of this folder, but for those that the pod itself sets."""
        temporary = self._host_paths.temporary
        variables = {"TMPDIR": temporary}
        if container.remote_start is RemoteStart.CLIENT:
            program = self.remote_hosts.write_client(Path(temporary), self._plan.hosts)
            variables |= build_client_environment(str(program))
        inherited = self._context.environment
        return {
            name: value for name, value in variables.items() if environment.get(name) == inherited.get(name)
        }

    def _build_layout(self, container: ContainerPlan) -> MountLayout:
        mounts = [Mount(source=self.path / "hosts", target="/etc/hosts")]
        mounts += [self._build_mount(mount) for mount in container.mounts]
        mounts += self._build_uncovered(container)
        if (own := self._host_paths.shared_memory) and not any(
            Path(mount.path) == _SHARED_MEMORY for mount in container.mounts
        ):
            mounts.append(Mount(source=Path(own), target=str(_SHARED_MEMORY)))
        if container.termination_path != "/dev/termination-log":
            file = self._termination_file(container)
            file.write_bytes(b"")
            file.chmod(0o666)
            mounts.append(Mount(source=file, target=container.termination_path))
        kept = [Path(container.working_directory), self._context.working_directory]
        kept += [Path(home)] if (home := container.environment.get("HOME")) else []
        try:
            layout = build_mount_operations(mounts, self.path / "root", kept, self._mount_points.is_ours)
        except MountError as error:
            raise CannotStart("CreateContainerError", str(error)) from error
        self._make_mount_points(layout)
        return layout

    def _build_uncovered(self, container: ContainerPlan) -> list[Mount]:
        """Return mounts that bring back what processes need of the host and a volume would hide (/tmp)."""
        needed = [Path(self._host_paths.temporary)]
        if container.remote_start is not None:
            needed.append(self.remote_hosts.folder)
        targets = [Path(os.path.realpath(mount.path)) for mount in container.mounts]
        return [
            Mount(source=path, target=str(path))
            for path in needed
            if any(Path(os.path.realpath(path)).is_relative_to(target) for target in targets)
        ]

    def _build_mount(self, mount: VolumeMount) -> Mount:
        volume = self._volumes[mount.volume]
        if volume.kind is VolumeKind.MEMORY and self._is_private(mount):
            size = f",size={volume.size_bytes}" if volume.size_bytes else ""
            return Mount(
                source=None, target=mount.path, read_only=mount.read_only, options=f"mode=1777{size}"
            )
        return Mount(source=self._find_source(mount), target=mount.path, read_only=mount.read_only)

    def _is_private(self, mount: VolumeMount) -> bool:
        """Say whether one container alone sees the volume, once: then it can be a tmpfs of that container."""
        every = (*self._plan.init_containers, *self._plan.containers)
        uses = sum(other.volume == mount.volume for container in every for other in container.mounts)
        return uses == 1 and self._plan.restart_policy == "Never" and not mount.sub_path

    def _find_source(self, mount: VolumeMount) -> Path:
        """Return the file or folder of the host that a mount shows, made where Kubernetes would make it."""
        volume = self._volumes[mount.volume]
        base = self.path / "volumes" / volume.name
        if volume.kind in (VolumeKind.CLAIM, VolumeKind.HOST):
            base = Path(volume.path)
        if volume.kind is VolumeKind.HOST:
            _check_host_path(volume)
        elif volume.kind is VolumeKind.CLAIM:
            base.mkdir(parents=True, exist_ok=True)
        source = base / mount.sub_path if mount.sub_path else base
        if not source.exists():
            if volume.kind is VolumeKind.FILES:
                raise CannotStart(CONFIG_ERROR, f'volume "{volume.name}" has no "{mount.sub_path}"')
            source.mkdir(parents=True)
        return source

    def _move_paths(self, container: ContainerPlan) -> dict[str, str]:
        """Return mount path -> where the volume is; make links for paths that nothing mentions."""
        moved: dict[str, str] = {}
        mentions = "\n".join(
            (*container.arguments, container.working_directory, *container.environment.values())
        )
        for mount in sorted(container.mounts, key=lambda mount: mount.path.count("/")):
            volume = self._volumes[mount.volume]
            target = Path(mount.path)
            if volume.kind is VolumeKind.MEMORY and target == _SHARED_MEMORY and target.is_dir():
                continue  # the host's own serves
            if volume.name == SSH_AUTH_VOLUME and container.remote_start is not None:
                continue  # no ssh runs here, and this user's own ~/.ssh may be at that path
            source = self._find_source(mount)
            if target.exists() and target.samefile(source):
                continue
            if (inside := Path(_replace_paths(str(target), moved))) != target:
                inside.parent.mkdir(parents=True, exist_ok=True)
                if not inside.exists():
                    inside.symlink_to(source)
                continue
            moved[str(target)] = str(source)
            if _replace_paths(mentions, {str(target): ""}) == mentions:
                self._link(target, source, volume)
        return moved

    def _link(self, target: Path, source: Path, volume: Volume) -> None:
        try:
            for parent in reversed(target.parents):
                if not parent.exists():
                    point = MountPoint(str(parent))
                    self._host_paths.mount_points.append(point)
                    self._record()
                    self._mount_points.use(point)
            self._host_paths.links[str(target)] = str(source)
            self._record()
            target.symlink_to(source)
        except OSError as error:
            if self._host_paths.links.pop(str(target), None) is not None:
                self._record()
            raise CannotStart(
                CONFIG_ERROR,
                f'volume "{volume.name}" cannot be mounted at {target}: this machine gives us no mount '
                f"namespaces, and no link can be made there ({error.strerror}). Name the path in an argument "
                "or variable of the container, which is then rewritten, or allow user namespaces",
            ) from error

    def _make_mount_points(self, layout: MountLayout) -> None:
        for point in layout.mount_points:
            self._host_paths.mount_points.append(point)
            self._record()
            self._mount_points.use(point)

    def _termination_file(self, container: ContainerPlan) -> Path:
        return self.path / f"{container.name}.termination"

    def _record(self) -> None:
        draft = self.path / f".{_RECORD}"
        draft.write_bytes(msgspec.json.encode(self._host_paths))
        draft.replace(self.path / _RECORD)


def remove_leftovers(folder: Path) -> None:
    """Remove all that a pod left behind, on the host and in its folder, but for its logs.

    For the end of a pod, and for one whose supervisor died. Its processes must have ended. Never raises.
    """
    record = folder / _RECORD
    try:
        paths = msgspec.json.decode(record.read_bytes(), type=_HostPaths)
    except (OSError, msgspec.DecodeError):
        paths = None
    if paths is not None:
        for link, target in paths.links.items():
            with contextlib.suppress(OSError):
                if os.readlink(link) == target:  # noqa: PTH115 (as it was written, not normalised)
                    Path(link).unlink()
        remove_unused(Path(paths.known_mount_points), paths.mount_points)
        shutil.rmtree(paths.temporary, ignore_errors=True)
        if paths.shared_memory:
            shutil.rmtree(paths.shared_memory, ignore_errors=True)
    for name in ("volumes", "root"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in (folder / "hosts", *folder.glob("*.termination"), record):
        with contextlib.suppress(OSError):
            file.unlink()


def _name_temporary(context: PodContext, uid: str) -> Path:
    """Return a path for the pod's TMPDIR that is short, needs no quotes and is nobody else's."""
    base = context.environment.get("TMPDIR") or "/tmp"  # noqa: S108 (a folder of our own below it, mode 0700)
    if len(base) > _LONGEST_TEMPORARY or not _PLAIN_PATH.fullmatch(base) or not Path(base).is_dir():
        base = "/tmp"  # noqa: S108
    digest = hashlib.sha256(f"{uid} {context.folder}".encode(errors="surrogateescape")).hexdigest()
    return Path(base) / f"tw-{digest[:12]}"


def _write_file(folder: Path, name: str, content: bytes, mode: int) -> None:
    path = folder / name
    if ".." in Path(name).parts or path.is_absolute() != folder.is_absolute():
        raise CannotStart(CONFIG_ERROR, f"file {name!r} of a volume must stay inside it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _check_host_path(volume: Volume) -> None:
    path = Path(volume.path)
    if volume.host_type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif volume.host_type == "FileOrCreate":
        path.touch()
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CannotStart(
            "CreateContainerError",
            f'volume "{volume.name}": hostPath {volume.path}: {error.strerror}; '
            "create it or set its type to DirectoryOrCreate",
        ) from error
    is_type = _HOST_TYPES.get(volume.host_type)
    if is_type is not None and not is_type(mode):
        raise CannotStart(
            "CreateContainerError",
            f'volume "{volume.name}": hostPath type check failed: {volume.path} is not a {volume.host_type}',
        )


def _replace_paths(text: str, moved: Mapping[str, str]) -> str:
    """Return the text with every mount path, also as the beginning of a longer path, replaced."""
    if not moved:
        return text
    paths = "|".join(map(re.escape, sorted(moved, key=len, reverse=True)))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w.-])", lambda match: moved[match.group(1)], text)
