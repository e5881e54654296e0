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


def write_data(text: str) -> None:
    """Print data, with a line end if there is none. Raises OutputClosed."""
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
        # What is still buffered would raise again when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise OutputClosed from None


def say(text: str) -> None:
    """Print talk: what is done, notices, warnings. A closed stderr is nobody's loss."""
    encoding = sys.stderr.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def warn(text: str) -> None:
    """Print a warning."""
    say(f"warning: {text}")


def can_redraw_talk(environment: Mapping[str, str]) -> bool:
    """Say whether stderr is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and environment.get("TERM", "") not in {"", "dumb"}
