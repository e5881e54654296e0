"""What the process of a command is like: how ctrl-C ends it, and that its standard streams are there.

Python raises KeyboardInterrupt wherever a program happens to be: in the middle of an import, where nobody
catches it and a traceback is shown, or in a callback, where it is printed and lost. So ctrl-C simply ends the
process, as it does other programs, except while a command is at work: then asyncio cancels what it does, and
`run` asks its job to stop.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def prepare_process() -> None:
    """Let ctrl-C end this process; open what is closed of stdin, stdout and stderr. To be called first."""
    # Ignored where whoever started the command wants it to be, as nohup and `&` of a script do.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let ctrl-C be a KeyboardInterrupt, which asyncio turns into a cancellation, until the block ends."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:  # ignored, or a face that is called by others
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_streams() -> None:
    """Put nothing where a standard stream is closed (`>&-`), lest a file that is opened gets its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
