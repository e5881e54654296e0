from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from progress.scripted_server import ScriptedServer, run_scripted_server
from trainwright.progress.reporter import Reporter

LONG = "3600"  # an interval that no test waits for
URL, CA, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
INTERVAL = "TRAINWRIGHT_PROGRESS_INTERVAL_SECONDS"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def build_reporter(server: ScriptedServer, token: Path, **more: str) -> Reporter:
    return Reporter({URL: server.url, TOKEN: str(token), INTERVAL: LONG, **more})


def report(reporter: Reporter, step: object = None, total: object = None, **more: object) -> None:
    """Report as `trainwright.progress.report` does."""
    values = {"epoch": None, "metrics": None, "force": False, **more}
    reporter.report(step, total, values["epoch"], values["metrics"], values["force"])  # type: ignore[arg-type]


def renew(token: Path, text: str) -> None:
    token.write_text(text)


async def flush(reporter: Reporter) -> bool:
    return await asyncio.to_thread(reporter.flush, 10.0)


async def test_a_report_has_percent_remaining_time_and_metrics_in_order(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 4, epoch=1, metrics={"loss": 0.5, "accuracy": 0.9})
        await server.wait_for_requests(1)
        request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/status")
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["content-type"] == "application/json"
    assert server.statuses == [
        {
            "progressPercentage": 25,
            "metrics": [
                {"name": "epoch", "value": "1"},
                {"name": "step", "value": "1"},
                {"name": "loss", "value": "0.5"},
                {"name": "accuracy", "value": "0.9"},
            ],
        }
    ]


async def test_the_first_report_leaves_at_once_and_then_only_the_newest_of_an_interval(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 1000)
        await server.wait_for_requests(1)
        for step in range(2, 1001):
            report(reporter, step, 1000)
        assert await flush(reporter)
    assert [status["progressPercentage"] for status in server.statuses] == [0, 100]


async def test_after_the_interval_the_newest_leaves_by_itself(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token, **{INTERVAL: "0.01"})
        report(reporter, 1, 100)
        await server.wait_for_requests(1)
        report(reporter, 2, 100)
        await server.wait_for_requests(2)
    assert [status["progressPercentage"] for status in server.statuses] == [1, 2]


async def test_force_does_not_wait_for_the_interval(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 100)
        await server.wait_for_requests(1)
        report(reporter, 2, 100, force=True)
        await server.wait_for_requests(2)


async def test_what_a_report_leaves_out_keeps_its_value_and_none_removes_a_metric(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, 5, 10, metrics={"loss": 1, "warm_up": 1})
        report(reporter, metrics={"accuracy": 0.5, "warm_up": None, "never": None})
        report(reporter, 6)
        assert await flush(reporter)
    status = server.statuses[-1]
    assert status["progressPercentage"] == 60
    assert {m["name"]: m["value"] for m in status["metrics"]} == {"step": "6", "loss": "1", "accuracy": "0.5"}


RANKS = {
    "no rank at all": ({}, True),
    "rank 0": ({"RANK": "0", "JOB_COMPLETION_INDEX": "1"}, True),
    "rank 1": ({"RANK": "1", "JOB_COMPLETION_INDEX": "0"}, False),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "2"}, False),
    "Flux, whose tasks have the variables of the first pod": (
        {"FLUX_TASK_RANK": "1", "JOB_COMPLETION_INDEX": "0"},
        False,
    ),
    "Slurm": ({"SLURM_PROCID": "3"}, False),
    "JAX": ({"JAX_PROCESS_ID": "1"}, False),
    "the second pod of a job without launcher": ({"JOB_COMPLETION_INDEX": "1"}, False),
    "another rank was chosen": ({"RANK": "3", "TRAINWRIGHT_PROGRESS_RANK": "3"}, True),
    "another than this was chosen": ({"RANK": "0", "TRAINWRIGHT_PROGRESS_RANK": "3"}, False),
}


@pytest.mark.parametrize(("environment", "reports"), RANKS.values(), ids=RANKS)
async def test_one_rank_reports(token: Path, environment: dict[str, str], reports: bool):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token, **environment)
        report(reporter, 1, 2)
        assert await flush(reporter)
    assert len(server.requests) == reports


@pytest.mark.parametrize("url", [{}, {URL: ""}])
def test_outside_a_train_job_nothing_happens(url: dict[str, str]):
    before = threading.active_count()
    reporter = Reporter(url)
    report(reporter, 1, 2)
    assert reporter.flush(0.0)
    assert threading.active_count() == before


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


NONSENSE: dict[str, dict[str, object]] = {
    "an object as total": {"step": "x", "total": object()},
    "no number as step": {"step": float("nan"), "total": 1},
    "an endless total": {"step": 1, "total": float("inf")},
    "a metric without text": {"metrics": {"x": Unprintable()}},
    "metrics in a list": {"metrics": [1, 2]},
    "names that are no text": {"metrics": {1: 2, None: 3, "": 4}},
    "a word as epoch": {"epoch": "third"},
}


@pytest.mark.parametrize("arguments", NONSENSE.values(), ids=NONSENSE)
async def test_nothing_that_is_reported_raises(token: Path, arguments: dict[str, object]):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, **arguments)
        report(reporter, 1, 2)
        assert await flush(reporter)
    assert server.statuses[-1]["progressPercentage"] == 50


@pytest.mark.parametrize("answer", ["503 Service Unavailable", "429 Too Many Requests\r\nRetry-After: 30"])
async def test_what_the_server_could_not_take_is_sent_again(token: Path, answer: str):
    async with run_scripted_server(answer) as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 2)
        await server.wait_for_requests(1)
        assert await flush(reporter)
    assert [status["progressPercentage"] for status in server.statuses] == [50, 50]


@pytest.mark.parametrize("answer", ["403 Forbidden", "409 Conflict", "422 Unprocessable Entity", "302 Found"])
async def test_what_the_server_refuses_is_not_sent_again_but_the_next_report_is(token: Path, answer: str):
    async with run_scripted_server(answer) as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 4)
        await server.wait_for_requests(1)
        assert await flush(reporter)
        report(reporter, 2, 4)
        assert await flush(reporter)
    assert [status["progressPercentage"] for status in server.statuses] == [25, 50]


async def test_a_token_that_was_renewed_is_used(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token)
        report(reporter, 1, 2)
        await server.wait_for_requests(1)
        renew(token, "renewed")
        report(reporter, 2, 2, force=True)
        await server.wait_for_requests(2)
    assert [r.headers["authorization"] for r in server.requests] == ["Bearer secret", "Bearer renewed"]


async def test_a_token_that_is_not_there_yet_is_waited_for(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token.with_name("late"))
        report(reporter, 1, 2)
        assert not await flush(reporter)
        renew(token.with_name("late"), "late")
        assert await flush(reporter)
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer late"]


async def test_a_server_is_believed_by_its_authority_alone(token: Path, tmp_path: Path, authorities):
    """1. The CA file is another's: nothing is sent. 2. The CA is rotated in place: reports go through."""
    ours, theirs = authorities
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(theirs.certificate.read_bytes())
    async with run_scripted_server(tls=ours.server) as server:
        reporter = build_reporter(server, token, **{CA: str(bundle)})
        report(reporter, 1, 2)
        assert not await flush(reporter)
        assert server.requests == []
        bundle.write_bytes(ours.certificate.read_bytes() + b"\n")
        assert await flush(reporter)
    assert len(server.requests) == 1


async def test_without_a_ca_file_the_systems_authorities_decide(token: Path, tmp_path: Path, authorities):
    async with run_scripted_server(tls=authorities[0].server) as server:
        reporter = build_reporter(server, token, **{CA: str(tmp_path / "absent")})
        report(reporter, 1, 2)
        assert not await flush(reporter)
        assert server.requests == []


def test_a_token_never_travels_in_the_clear(token: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("DEBUG", "trainwright.progress")
    reporter = Reporter({URL: "http://192.0.2.1/status", TOKEN: str(token)})
    report(reporter, 1, 2)
    assert reporter.flush(10.0)  # refused for good, at once: nobody tried to connect
    assert "neither https nor http on this machine" in caplog.text


def test_a_server_that_says_nothing_holds_up_neither_reports_nor_flush_for_long(token: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/status"
        reporter = Reporter({URL: url, TOKEN: str(token)})
        started = time.monotonic()
        for step in range(1000):
            report(reporter, step, 1000)
        assert not reporter.flush(0.1)
        assert time.monotonic() - started < 5.0, "waited for a request to time out"


async def test_threads_may_report_at_once(token: Path):
    async with run_scripted_server() as server:
        reporter = build_reporter(server, token, **{INTERVAL: "0"})

        def work(name: str) -> None:
            for step in range(200):
                report(reporter, step, 200, metrics={name: step})

        await asyncio.gather(*(asyncio.to_thread(work, name) for name in "abcd"))
        assert await flush(reporter)
    assert {m["name"] for m in server.statuses[-1]["metrics"]} == {"step", "a", "b", "c", "d"}


def test_an_unusable_certificate_file_is_a_failure_like_any_other(token: Path, tmp_path: Path):
    bundle = tmp_path / "ca.crt"
    bundle.write_text("no certificate")
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context(cafile=str(bundle))
    reporter = Reporter({URL: "https://localhost:1/status", TOKEN: str(token), CA: str(bundle)})
    report(reporter, 1, 2)
    assert not reporter.flush(10.0)
