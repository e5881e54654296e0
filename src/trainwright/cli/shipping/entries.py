"""What a job on a cluster starts, by the words of the command line.

What is sent along is named as it lies in the working directory; everything else is the image's, and whether
it is there is only known in the pod.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection
from pathlib import Path

import msgspec

from trainwright.cli.build_train_job import Entry, Module, Program, Script
from trainwright.cli.code_sources import CodeSource, RunWords, WorkingDirectory
from trainwright.cli.entries import find_entry
from trainwright.cli.shipping.ignoring import GIT_IGNORE, OWN_IGNORE
from trainwright.errors import UsageError

_PYTHON_SUFFIXES = (".py", ".pyz")


def find_shipped_entry(words: RunWords, code: CodeSource, root: Path) -> Entry:
    """Return what to start in the pod. Raises UsageError for what is not there, or lies elsewhere."""
    if not isinstance(code, WorkingDirectory):
        return _name_entry(words)
    if words.module is None and not words.words and words.after_dashes:
        program, *args = words.after_dashes
        if "/" not in program:  # one of the image's
            return Program(path=program, args=tuple(args))
    entry = find_entry(words.module, words.words, words.after_dashes, None)
    if isinstance(entry, Script | Program):
        return msgspec.structs.replace(
            entry, path=_place(entry.path, root, is_program=isinstance(entry, Program))
        )
    return entry


def check_is_shipped(entry: Entry, paths: Collection[str]) -> None:
    """Raise UsageError where the script or program is not among what is sent along."""
    if isinstance(entry, Script) or (isinstance(entry, Program) and entry.path.startswith("./")):
        path = posixpath.normpath(entry.path)
        if path not in paths and path != ".":
            raise UsageError(
                f"{entry.path} would not be sent along: {GIT_IGNORE} or {OWN_IGNORE} names it; "
                f"write `!{path}` into {OWN_IGNORE}"
            )


def _name_entry(words: RunWords) -> Entry:
    """Return what to start where the files are elsewhere: nothing can be looked up here."""
    behind = words.after_dashes or ()
    if words.module is not None:
        return Module(name=words.module, args=(*words.words, *behind))
    if words.words:
        first, *args = words.words
        kind = Script if first.endswith(_PYTHON_SUFFIXES) else Program
        return kind(path=first, args=(*args, *behind))
    if behind:
        return Program(path=behind[0], args=tuple(behind[1:]))
    return find_entry(None, (), None, None)  # says that there is nothing to run


def _place(path: str, root: Path, *, is_program: bool) -> str:
    """Return the path as it is below the working directory of the pod."""
    if is_program and path.startswith("/"):
        return path  # of the image, as `/bin/sh` is
    # By its words first, not by where links lead: the pod has the same links. The way to the directory itself
    # may lead through links that its own path does not have.
    folder, name = os.path.split(os.path.join(root, path))  # noqa: PTH118
    places = (os.path.relpath(os.path.join(way, name), root) for way in (folder, os.path.realpath(folder)))  # noqa: PTH118
    below = next((place for place in places if place != ".." and not place.startswith("../")), None)
    if below is None:
        raise UsageError(
            f"{path} is not below {root}, which is what is sent along; call the command in the directory of "
            "the code, or use --code-volume, --code-url or --no-code"
        )
    return f"./{below}" if is_program else below
