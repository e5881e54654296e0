"""What a supervisor says to the command that started it, once, when it begins."""

from __future__ import annotations

from typing import Final

import msgspec

STARTED: Final = "started"
BUSY: Final = "busy"


class Handshake(msgspec.Struct, frozen=True):
    """STARTED with the path of its log, BUSY (one is at work already), or the name and text of an error."""

    result: str
    message: str = ""
