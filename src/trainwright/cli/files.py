"""Files that the command line names. `-` is stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from trainwright.errors import UsageError

STDIN = "-"


def get_working_directory() -> Path:
    """Return where the command is called. Raises UsageError where that directory was removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the directory that this command is called in does not exist any more; `cd` to one that does"
        ) from None


def read_bytes(name: str) -> bytes:
    """Return what a file holds. Raises UsageError where it cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file in {get_working_directory()}") from None
    except IsADirectoryError:
        raise UsageError(f"{name}: is a directory; name the files in it") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL character in the name
        raise UsageError(f"{name!r}: {error}") from None


def read_text(name: str) -> str:
    """Return what a file holds. Raises UsageError where it cannot be read, or is not UTF-8."""
    data = read_bytes(name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
