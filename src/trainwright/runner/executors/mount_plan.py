"""Works out how volumes get to their mount paths, where many of these paths do not exist on the host.

The host is looked at but never changed, with one exception that the caller carries out. The result is a
list of primitive operations that `pod_init` performs in the container's mount namespace:

- a mount path that exists is bound over;
- one inside another volume is made there, as a kubelet does;
- for one that does not exist (`/workspace/dataset`, `/etc/mpi`), a new root is built on a tmpfs: the
  directories on the way to it (`/`, `/etc`) are made anew, and each of their entries is bound from the
  host. What a program creates directly in such a directory is in memory and gone with the pod;
- therefore a directory where people keep data (home, working directory, /tmp, /data/mine) is not rebuilt:
  there the empty mount point is made on the host and removed at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Final

import msgspec

# Nobody keeps results of their own directly in these, or anywhere below; nor directly below `/`.
_SYSTEM: Final = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr", "var"}
)
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 (named, not written to)


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to mount: a file or folder of the host, or (`source` None) a tmpfs with these options."""

    source: Path | None
    target: str
    read_only: bool = False
    options: str = "mode=0777"


class MountPoint(msgspec.Struct, frozen=True):
    """An empty folder or file to be made on the host."""

    path: str
    is_file: bool = False


class MountLayout(msgspec.Struct, frozen=True, kw_only=True):
    """What `pod_init` does, in order; `new_root` is None where the host's root serves.

    `mount_points` are to be made on the host before, and removed after if still empty, deepest last
    (`executors.mount_points`).
    """

    operations: tuple[tuple[str, ...], ...] = ()
    new_root: str | None = None
    mount_points: tuple[MountPoint, ...] = ()


class MountError(Exception):
    """A volume cannot be mounted where the pod wants it; the message is for the user."""


def build_mount_operations(
    mounts: Iterable[Mount],
    new_root: Path,
    kept: Sequence[Path] = (),
    is_mount_point: Callable[[str], bool] = lambda _: False,
) -> MountLayout:
    """Return the operations that bring the mounts about; `kept` are folders where this user keeps data.

    `new_root` is an existing empty folder. A later mount at the same path hides the earlier one. Paths that
    `is_mount_point` of another pod count as not there: this pod uses them, too.
    Raises MountError where a mount path, or a directory on its way, is a file or the other way round.
    """
    resolved = sorted(
        ((os.path.realpath(mount.target), mount) for mount in mounts), key=lambda item: item[0].count("/")
    )

    def is_there(path: str | Path) -> bool:
        # Asked on both sides: other pods make and remove their mount points meanwhile.
        was_mount_point = is_mount_point(str(path))
        return os.path.lexists(path) and not (was_mount_point or is_mount_point(str(path)))

    opened: set[str] = set()
    mount_points: dict[str, MountPoint] = {}
    for target, mount in resolved:
        if _enclosing(target, [other for other, _ in resolved]) or is_there(target):
            continue
        existing = next(parent for parent in Path(target).parents if is_there(parent))
        if not existing.is_dir():
            raise MountError(f"cannot mount at {mount.target}: {existing} is not a directory")
        if _keeps_data(existing, kept) or is_mount_point(target):
            for point in _missing_points(existing, Path(target), is_file=_is_file(mount)):
                mount_points.setdefault(point.path, point)
        else:
            opened.update((str(existing), *map(str, existing.parents)))
    operations: list[tuple[str, ...]] = []
    prefix = ""
    if opened:
        prefix = str(new_root)
        operations += _rebuild("/", opened, prefix)
    operations += _place(resolved, prefix, mount_points.keys())
    return MountLayout(
        operations=tuple(operations),
        new_root=prefix or None,
        mount_points=tuple(mount_points.values()),
    )


def _place(
    resolved: Sequence[tuple[str, Mount]], prefix: str, mount_points: Set[str]
) -> Iterable[tuple[str, ...]]:
    """Yield the mounts, outer ones first, and only then what makes them read-only."""
    late: list[tuple[str, ...]] = []
    for target, mount in resolved:
        place = prefix + target
        is_file = _is_file(mount)
        if _enclosing(target, [other for other, _ in resolved]) or not (
            os.path.lexists(target) or target in mount_points
        ):
            if is_file:
                yield "directory", str(Path(place).parent)
                yield "file", place
            else:
                yield "directory", place
        elif target not in mount_points and is_file == Path(target).is_dir():
            kind = "file" if is_file else "directory"
            raise MountError(f"cannot mount a {kind} at {mount.target}: that path exists and is none")
        if mount.source is None:
            yield "tmpfs", place, mount.options
        else:
            yield "bind", place, str(mount.source)
        if mount.read_only:
            late.append(("read-only", place))
    yield from late


def _rebuild(directory: str, opened: set[str], prefix: str) -> Iterable[tuple[str, ...]]:
    """Yield what makes `directory` anew below `prefix`, with everything in it bound from the host.

    One that this user may not read (root's home) becomes empty: its entries cannot be seen either way.
    """
    if not os.access(directory, os.R_OK | os.X_OK):
        return
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            place = prefix + entry.path
            if entry.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # removed since
                    yield "link", place, str(Path(entry.path).readlink())
            elif entry.path in opened:
                yield "directory", place
                yield from _rebuild(entry.path, opened, prefix)
            else:
                yield ("directory" if entry.is_dir() else "file"), place
                yield "bind-if-possible", place, entry.path


def _is_file(mount: Mount) -> bool:
    return mount.source is not None and not mount.source.is_dir()


def _enclosing(target: str, targets: Iterable[str]) -> bool:
    """Say whether the target lies inside another one."""
    return any(target.startswith(other.rstrip("/") + "/") for other in targets if other != target)


def _keeps_data(directory: Path, kept: Iterable[Path]) -> bool:
    """Say whether a program may want to find again what it creates in this directory."""
    if directory == Path("/") or not os.access(directory, os.W_OK):
        return False
    if any(directory.is_relative_to(folder) for folder in (*kept, *_TEMPORARY) if folder != Path("/")):
        return True
    return len(directory.parts) > 2 and directory.parts[1] not in _SYSTEM


def _missing_points(existing: Path, target: Path, *, is_file: bool) -> list[MountPoint]:
    """Return what has to be made below `existing`, down to the target."""
    between = [parent for parent in reversed(target.parents) if parent.is_relative_to(existing)]
    return [*(MountPoint(str(folder)) for folder in between[1:]), MountPoint(str(target), is_file)]
