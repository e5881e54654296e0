"""Which paths of a directory ignore files name: `.gitignore` as git reads it, and `.trainwrightignore`.

Both have git's syntax and hold for the directory they lie in and everything below. Of several patterns the
last one that fits wins, those of deeper directories over those above. `.trainwrightignore` has the last word,
so that it can both leave out what git keeps and take along what git ignores.
Source: gitignore(5). Patterns are matched by `pathspec`, which is tested against git itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import msgspec
from pathspec import GitIgnoreSpec

GIT_IGNORE = ".gitignore"
OWN_IGNORE = ".trainwrightignore"
# The repository itself and what Python makes of code; the ignore files may say otherwise.
_DEFAULTS = (".git", ".hg", ".svn", "__pycache__/")


class IgnoreRules(msgspec.Struct, frozen=True):
    """Ignore files by the directory that they lie in; all paths are relative to one root."""

    git: Mapping[str, GitIgnoreSpec]
    own: Mapping[str, GitIgnoreSpec]

    def is_ignored(self, path: str, *, is_directory: bool) -> bool:
        """Say whether a path is left out. Of a directory that is, nothing below needs to be asked."""
        for specs in (self.own, self.git):
            if (verdict := _find_verdict(specs, path, is_directory)) is not None:
                return verdict
        return bool(_find_verdict({"": _DEFAULT_SPEC}, path, is_directory))


def parse_ignore_file(text: str) -> GitIgnoreSpec:
    """Return the patterns of an ignore file; lines that are no pattern match nothing, as in git."""
    return GitIgnoreSpec.from_lines(text.splitlines())


def build_rules(files: Iterable[tuple[str, str, str]]) -> IgnoreRules:
    """Return the rules of ignore files: directory, name and text of each."""
    git: dict[str, GitIgnoreSpec] = {}
    own: dict[str, GitIgnoreSpec] = {}
    for directory, name, text in files:
        (own if name == OWN_IGNORE else git)[directory] = parse_ignore_file(text)
    return IgnoreRules(git, own)


def _find_verdict(specs: Mapping[str, GitIgnoreSpec], path: str, is_directory: bool) -> bool | None:
    """Return what the deepest ignore file that has a fitting pattern says; None where none has."""
    for parent in (str(parent) for parent in PurePosixPath(path).parents):
        directory = "" if parent == "." else parent
        spec = specs.get(directory)
        if spec is None:
            continue
        below = path[len(directory) + 1 :] if directory else path
        if (verdict := spec.check_file(f"{below}/" if is_directory else below).include) is not None:
            return verdict
    return None


_DEFAULT_SPEC = GitIgnoreSpec.from_lines(_DEFAULTS)
