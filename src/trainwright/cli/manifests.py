"""Read the objects of files, and every mistake of every file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from trainwright.api.reading import ReadObject, read_objects
from trainwright.cli.files import read_bytes
from trainwright.errors import UserError
from trainwright.field_errors import FieldError


class InvalidManifests(UserError):
    """Objects in files break rules; the message has a line for each mistake, in the order of the files."""

    exit_code = 2

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(lines))


class Mistake(msgspec.Struct, frozen=True):
    """One line about one file."""

    source: str
    line: str


class Manifests(msgspec.Struct, frozen=True):
    """Objects in the order of the files; mistakes in what could not be read, and warnings, a line each."""

    files: tuple[str, ...]
    objects: tuple[ReadObject, ...]
    mistakes: tuple[Mistake, ...] = ()
    warnings: tuple[str, ...] = ()


def read_manifests(files: Iterable[str]) -> Manifests:
    """Return what all files hold. Raises UsageError for a file that is not there."""
    objects: list[ReadObject] = []
    warnings: list[str] = []
    mistakes: list[Mistake] = []
    seen: dict[tuple[str, str, str], str] = {}
    names = tuple(dict.fromkeys(files))
    for file in names:
        read = read_objects(read_bytes(file), file)
        mistakes += [Mistake(file, format_mistake(file, error)) for error in read.errors]
        warnings += [format_mistake(file, error) for error in read.warnings]
        for item in read.objects:
            meta = item.value.metadata
            key = (item.kind, meta.namespace or "", meta.name)
            if meta.name and seen.get(key, file) != file:
                twice = f"{item.kind} {meta.name!r} is already in {seen[key]}; keep one of them"
                mistakes.append(Mistake(file, f"{file}: {twice}"))
            seen.setdefault(key, file)
        objects += read.objects
    return Manifests(names, tuple(objects), tuple(mistakes), tuple(warnings))


def format_mistake(source: str, error: FieldError) -> str:
    """Return `file:line:column: path: what is wrong`, the form that editors and terminals jump to."""
    return f"{source}:{error}" if error.position else f"{source}: {error}"
