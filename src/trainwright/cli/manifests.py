"""Read the objects of files, all of them or none: every mistake of every file in one error."""

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


class Manifests(msgspec.Struct, frozen=True):
    """Objects in the order of the files, and what readers should know about them, a line each."""

    objects: tuple[ReadObject, ...]
    warnings: tuple[str, ...]


def read_manifests(files: Iterable[str]) -> Manifests:
    """Return the objects of all files. Raises InvalidManifests with every mistake, or UsageError."""
    objects: list[ReadObject] = []
    warnings: list[str] = []
    mistakes: list[str] = []
    seen: dict[tuple[str, str, str], str] = {}
    for file in dict.fromkeys(files):
        read = read_objects(read_bytes(file), file)
        mistakes += [format_mistake(file, error) for error in read.errors]
        warnings += [format_mistake(file, error) for error in read.warnings]
        for item in read.objects:
            meta = item.value.metadata
            key = (item.kind, meta.namespace or "", meta.name)
            if meta.name and key in seen and seen[key] != file:
                mistakes.append(
                    f"{file}: {item.kind} {meta.name!r} is already in {seen[key]}; keep one of them"
                )
            seen.setdefault(key, file)
        objects += read.objects
    if mistakes:
        raise InvalidManifests(mistakes)
    return Manifests(tuple(objects), tuple(warnings))


def format_mistake(source: str, error: FieldError) -> str:
    """Return `file:line:column: path: what is wrong`, the form that editors and terminals jump to."""
    return f"{source}:{error}" if error.position else f"{source}: {error}"
