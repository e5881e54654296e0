"""Logs: one JSON object a line on stderr, ours and those of libraries alike. In processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainwright.errors import UsageError
from trainwright.operator.logs import LogSettings, configure_logs

PROGRAM = """
import logging, structlog
from trainwright.operator.logs import LogSettings, configure_logs
configure_logs(LogSettings(**{settings!r}))
log = structlog.get_logger("x")
log.debug("quiet", a=1)
log.info("applied child", kind="JobSet", key=("ns", "demo"))
logging.getLogger("aiohttp.server").error("broken %s", "request")
logging.getLogger("aiohttp.server").info("not ours")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
"""


def run(**settings: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(settings=settings)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_line_is_an_object_with_time_level_and_context() -> None:
    lines = [json.loads(line) for line in run()]
    assert [(line["level"], line["msg"]) for line in lines] == [
        ("info", "applied child"),
        ("error", "broken request"),
        ("error", "failed"),
    ]
    assert lines[0]["kind"] == "JobSet"
    assert lines[0]["ts"].endswith("Z")
    assert "ZeroDivisionError" in lines[2]["exception"]


@pytest.mark.parametrize(("level", "count"), {"debug": 4, "4": 4, "2": 3, "error": 2}.items())
def test_the_level_says_what_is_told(level: str, count: int) -> None:
    assert len(run(level=level)) == count


def test_times_may_be_numbers_and_text_may_be_for_people() -> None:
    assert isinstance(json.loads(run(time_encoding="epoch")[0])["ts"], float)
    assert "applied child" in run(encoder="console")[0]


WRONG = {
    "level": LogSettings(level="loud"),
    "encoder": LogSettings(encoder="xml"),
    "time-encoding": LogSettings(time_encoding="stardate"),
}


@pytest.mark.parametrize(("flag", "settings"), WRONG.items(), ids=WRONG)
def test_a_setting_that_does_not_exist_is_refused(flag: str, settings: LogSettings) -> None:
    with pytest.raises(UsageError, match=f"--zap-(log-)?{flag}"):
        configure_logs(settings)
