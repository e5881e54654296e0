"""How the code of a job gets to where it runs, by the options of `run`. Values; nothing is read here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from trainwright.errors import UsageError

# Kubernetes' own rule for a path inside a volume: relative, and without `..`.
_PARENT = ".."


class RunWords(msgspec.Struct, frozen=True, kw_only=True):
    """The words that name what to run: before `--`, behind it (None where there is no `--`), and a module."""

    module: str | None
    words: tuple[str, ...]
    after_dashes: tuple[str, ...] | None


class CodeSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job's code comes from; `option` is what chooses it."""

    option: ClassVar[str] = ""


class WorkingDirectory(CodeSource, frozen=True, kw_only=True):
    """The directory where the command is called, as it is then."""


class CodeVolume(CodeSource, frozen=True, kw_only=True):
    """A folder of a PersistentVolumeClaim of the job's namespace; `path` empty for its root."""

    option: ClassVar[str] = "--code-volume"
    claim: str
    path: str = ""


class CodeUrl(CodeSource, frozen=True, kw_only=True):
    """A tar archive, compressed or not, that every training node downloads."""

    option: ClassVar[str] = "--code-url"
    url: str


class NoCode(CodeSource, frozen=True, kw_only=True):
    """None: the image has it."""

    option: ClassVar[str] = "--no-code"


def parse_code_options(volume: str | None, url: str | None, *, none: bool) -> CodeSource:
    """Return the source that the options choose. Raises UsageError for several, or for what cannot be one."""
    chosen: Sequence[CodeSource] = [
        *([] if volume is None else [_parse_volume(volume)]),
        *([] if url is None else [_parse_url(url)]),
        *([NoCode()] if none else []),
    ]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(source.option for source in chosen)} exclude each other; keep one")
    return chosen[0] if chosen else WorkingDirectory()


def _parse_volume(text: str) -> CodeVolume:
    claim, _, path = text.partition(":")
    path = path.strip("/")
    if not claim or _PARENT in path.split("/"):
        raise UsageError(f"--code-volume: {text!r} is not CLAIM or CLAIM:FOLDER (a folder inside the volume)")
    return CodeVolume(claim=claim, path=path)


def _parse_url(text: str) -> CodeUrl:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"--code-url: {text!r} is not an http:// or https:// URL of a tar archive")
    return CodeUrl(url=text)
