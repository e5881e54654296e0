"""What is printed where: data goes to stdout, talk goes to stderr.

Data is written as UTF-8, whatever the locale, so that a label in any language neither fails nor changes on
its way into a pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


class OutputClosed(Exception):
    """Whoever read our output went away (`trainwright list | head`): nothing to say, nothing left to do."""


class OutputLost(Exception):
    """What should be printed cannot be written, as to a file on a disk that is full."""


def write_data(text: str) -> None:
    """Print data, with a line end if there is none. Raises OutputClosed, OutputLost."""
    if text and not text.endswith("\n"):
        text += "\n"
    try:
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:  # a replaced stdout without bytes below, as in notebooks
            sys.stdout.write(text)
        else:
            sys.stdout.flush()
            stream.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_output()
        raise OutputClosed from None
    except OSError as error:
        let_go_of_output()
        raise OutputLost(f"what is printed cannot be written: {error.strerror or error}") from error


def let_go_of_output() -> None:
    """Send stdout nowhere: what is still buffered would raise again when the interpreter ends."""
    _send_nowhere(sys.stdout.fileno())


def say(text: str) -> None:
    """Print talk: what is done, notices, warnings. A stderr that nobody can write to is nobody's loss."""
    encoding = sys.stderr.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
    except OSError:
        _send_nowhere(sys.stderr.fileno())


def warn(text: str) -> None:
    """Print a warning."""
    say(f"warning: {text}")


def can_redraw_talk(environment: Mapping[str, str]) -> bool:
    """Say whether stderr is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and environment.get("TERM", "") not in {"", "dumb"}


def _send_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
