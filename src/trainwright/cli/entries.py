"""From words on the command line to what is run: a script, a module or a program."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from trainwright.cli.build_train_job import Entry, Module, Program, Script
from trainwright.cli.files import get_working_directory
from trainwright.errors import UsageError


def find_entry(
    module: str | None, words: Sequence[str], after_dashes: Sequence[str] | None, path: str | None
) -> Entry:
    """Return what to run.

    `words` stand before `--`, `after_dashes` behind it (None where there is no `--`). With a module all
    words are its arguments; else the first word is the script, and where there is none, a program stands
    behind `--`. Raises UsageError where nothing is named, or what is named does not exist.
    """
    behind = tuple(after_dashes or ())
    if module is not None:
        return Module(name=module, args=(*words, *behind))
    if words:
        return _find_script(words[0], (*words[1:], *behind))
    if behind:
        return _find_program(behind[0], behind[1:], path)
    raise UsageError("nothing to run: name a script, a module with `-m`, or a program after `--`")


def _find_script(name: str, args: tuple[str, ...]) -> Entry:
    script = Path(name)
    if not script.exists():
        remedy = f"; to run a program write `trainwright run -- {name} ...`" if shutil.which(name) else ""
        raise UsageError(f"script {name!r} does not exist in {get_working_directory()}{remedy}")
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise UsageError(
            f"{name!r} is a directory without a __main__.py: name a script, or a module with `-m`"
        )
    if script.is_dir() or script.suffix in {".py", ".pyz"}:
        return Script(path=name, args=args)
    if os.access(script, os.X_OK):
        return Program(path=name if "/" in name else f"./{name}", args=args)
    raise UsageError(
        f"{name!r} is neither a Python script (.py) nor executable: `chmod +x` it, or name its interpreter: "
        f"`trainwright run -- sh {name}`"
    )


def _find_program(name: str, args: tuple[str, ...], path: str | None) -> Entry:
    if "/" in name:
        if not Path(name).exists():
            raise UsageError(f"program {name!r} does not exist in {get_working_directory()}")
        if not os.access(name, os.X_OK) or Path(name).is_dir():
            raise UsageError(
                f"program {name!r} is not executable; `chmod +x` it, or name its interpreter first"
            )
    elif shutil.which(name, path=path) is None:
        here = f"; write ./{name} for the one in this directory" if Path(name).exists() else ""
        raise UsageError(f"program {name!r} is not found on PATH{here}")
    return Program(path=name, args=args)
