"""Read the code below a directory: files, folders and links, without what ignore files name.

Nothing is left out but that, virtual environments, and what cannot be code (sockets, pipes, devices). Links
stay links where they point into the tree; one that points out of it would point to nothing in a pod and is
refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from trainwright.cli.shipping.ignoring import GIT_IGNORE, OWN_IGNORE, IgnoreRules, build_rules
from trainwright.errors import UsageError

# More than this is data, whatever it compresses to; it is read into memory.
MOST_UNPACKED_BYTES = 100_000_000
LARGEST_SHOWN = 5
_PERMISSIONS = 0o777  # set-user-id and its like mean nothing for another user on another machine
_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the tree, relative to its root. Exactly one of `content` and `target`, or a folder."""

    path: str
    mode: int
    content: bytes | None = None
    target: str | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.content is None and self.target is None


class _Found(msgspec.Struct, frozen=True):
    path: str
    mode: int
    size: int


class TooMuchCode(UsageError):
    """The directory holds more than can be sent along with a job."""

    def __init__(self, root: Path, why: str, largest: Sequence[tuple[str, int]]) -> None:
        lines = [f"  {size / 1e6:9.1f} MB  {path}" for path, size in largest]
        super().__init__(
            "\n".join(
                [
                    f"{root}: {why}. The largest files:",
                    *lines,
                    f"leave out what is no code by {OWN_IGNORE} (it reads like {GIT_IGNORE}), or put the "
                    "code where the pods find it: --code-volume CLAIM[:FOLDER], --code-url URL, or into the "
                    "image with --no-code",
                ]
            )
        )


def read_tree(root: Path) -> list[Entry]:
    """Return what is below the directory, sorted by path. Raises UsageError, TooMuchCode."""
    repository = _find_repository(root)
    prefix = "" if repository == root else root.relative_to(repository).as_posix()
    above = [repository, *(repository / part for part in _list_parents(prefix))]
    rules = build_rules(
        file for folder in above for file in _read_ignore_files(folder, _name_below(repository, folder))
    )
    found = sorted(_Walk(root, prefix).list_found("", rules), key=lambda item: item.path)
    size = sum(item.size for item in found)
    if size > MOST_UNPACKED_BYTES:
        why = f"holds {size / 1e6:.0f} MB, and at most {MOST_UNPACKED_BYTES / 1e6:.0f} MB can be sent along"
        raise TooMuchCode(root, why, list_largest([(item.path, item.size) for item in found]))
    return [entry for item in found if (entry := _read(root, item)) is not None]


def list_largest(sizes: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the largest few, largest first."""
    return sorted(sizes, key=lambda item: (-item[1], item[0]))[:LARGEST_SHOWN]


class _Walk(msgspec.Struct, frozen=True):
    """Goes through a tree whose root lies at `prefix` below the root of the ignore rules."""

    root: Path
    prefix: str

    def list_found(self, folder: str, rules: IgnoreRules) -> Iterator[_Found]:
        """Yield what is in a folder and below it, and is not ignored."""
        place = "/".join(part for part in (self.prefix, folder) if part)
        if folder:
            rules = _add_rules(rules, build_rules(_read_ignore_files(self.root / folder, place)))
        try:
            names = [entry.name for entry in (self.root / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError) as error:
            if folder:
                return  # somebody else's temporary folder
            raise UsageError(_cannot_read(str(self.root), error)) from error
        except OSError as error:
            raise UsageError(_cannot_read(folder or str(self.root), error)) from error
        for name in names:
            path = f"{folder}/{name}" if folder else name
            try:
                status = (self.root / path).lstat()
            except FileNotFoundError:
                continue  # somebody else's temporary file
            except OSError as error:
                raise UsageError(_cannot_read(path, error)) from error
            is_folder = stat.S_ISDIR(status.st_mode)
            if rules.is_ignored(f"{place}/{name}" if place else name, is_directory=is_folder):
                continue
            if is_folder:
                if (self.root / path / _VIRTUAL_ENVIRONMENT).exists():
                    continue
                yield _Found(path, status.st_mode, 0)
                yield from self.list_found(path, rules)
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield _Found(path, status.st_mode, status.st_size)


def _find_repository(root: Path) -> Path:
    """Return the root of the git repository that the directory is in, else the directory."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


def _list_parents(path: str) -> list[str]:
    """Return `a`, `a/b`, `a/b/c` for `a/b/c`."""
    parts = path.split("/") if path else []
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _name_below(repository: Path, folder: Path) -> str:
    return "" if folder == repository else folder.relative_to(repository).as_posix()


def _add_rules(rules: IgnoreRules, added: IgnoreRules) -> IgnoreRules:
    if not added.git and not added.own:
        return rules
    return IgnoreRules({**rules.git, **added.git}, {**rules.own, **added.own})


def _read_ignore_files(folder: Path, place: str) -> Iterator[tuple[str, str, str]]:
    for name in (GIT_IGNORE, OWN_IGNORE):
        text = _read_text(folder / name)
        if name == GIT_IGNORE:
            # Patterns of one clone alone count less than those of the repository: they come first.
            private = _read_text(folder / ".git" / "info" / "exclude")
            text = text if private is None else f"{private}\n{text or ''}"
        if text is not None:
            yield place, name, text


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(_cannot_read(str(path), error)) from error


def _read(root: Path, item: _Found) -> Entry | None:
    """Return what was found, None where it has gone since: editors and tools have temporary files."""
    path = root / item.path
    mode = item.mode & _PERMISSIONS
    if stat.S_ISDIR(item.mode):
        return Entry(path=item.path, mode=mode)
    try:
        if stat.S_ISLNK(item.mode):
            target = os.readlink(path)  # noqa: PTH115 (pathlib would tidy it up)
            _check_link(item.path, target)
            return Entry(path=item.path, mode=_PERMISSIONS, target=target)
        return Entry(path=item.path, mode=mode, content=path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(_cannot_read(item.path, error)) from error


def _check_link(path: str, target: str) -> None:
    """Refuse a link that points out of the tree, by its words: what it leads through may not be there."""
    inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    if os.path.isabs(target) or inside == ".." or inside.startswith("../"):  # noqa: PTH117
        raise UsageError(
            f"{path} is a link to {target}, which is not in this directory and would not be in a pod; "
            f"replace it by what it points to, or leave it out by {OWN_IGNORE}"
        )


def _cannot_read(path: str, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror}; make it readable, or leave it out by {OWN_IGNORE}"
