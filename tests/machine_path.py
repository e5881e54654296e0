"""Paths of the whole machine that tests of several workers would otherwise meet at."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def using(path: str, *, alone: bool = False) -> Iterator[None]:
    """Use a path together with others who do, or alone, as where a link may be made there for a moment."""
    lock_file = Path(tempfile.gettempdir(), f"trainwright-tests{path.replace('/', '-')}.lock")
    lock = os.open(lock_file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        # Closing alone would not do while a process that is just being started has the descriptor too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
