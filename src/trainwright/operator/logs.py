"""Structured logs on stderr: one JSON object a line, or text for people who watch.

The flags are those of the peer, whose manifests set them: a level is debug, info, error, or a number, the
verbosity of its logger; 4 and more is debug here.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import Processor

from trainwright.errors import UsageError

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
_DEBUG_VERBOSITY: Final = 4
_TIMES: Final[dict[str, str | None]] = {
    "rfc3339": "iso",
    "rfc3339nano": "iso",
    "iso8601": "iso",
    "epoch": None,
    "millis": None,
    "nano": None,
}


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to log. `encoder` is json or console; `time_encoding` a name that zap knows."""

    level: str = "info"
    encoder: str = "json"
    time_encoding: str = "rfc3339nano"


def configure_logs(settings: LogSettings) -> None:
    """Set up the logs of this process. Raises UsageError for a setting that does not exist."""
    level = _parse_level(settings.level)
    if settings.encoder not in ("json", "console"):
        raise UsageError(f"--zap-encoder: {settings.encoder!r} is not json or console")
    if settings.time_encoding not in _TIMES:
        raise UsageError(f"--zap-time-encoding: {settings.time_encoding!r} is not one of {', '.join(_TIMES)}")
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt=_TIMES[settings.time_encoding], utc=True, key="ts"),
        structlog.processors.format_exc_info,
    ]
    is_json = settings.encoder == "json"
    renderer: Processor = (
        structlog.processors.JSONRenderer(serializer=_encode) if is_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.processors.EventRenamer("msg"), renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # What libraries log (asyncio: tasks that failed; aiohttp: broken requests) looks the same.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.EventRenamer("msg"),
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))


def _parse_level(text: str) -> int:
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isdecimal():
        return logging.DEBUG if int(text) >= _DEBUG_VERBOSITY else logging.INFO
    raise UsageError(f"--zap-log-level: {text!r} is not one of {', '.join(_LEVELS)}, nor a number")


def _encode(event: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
