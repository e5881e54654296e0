from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from runner.progress_client import RawClient, build_report
from trainwright.control.progress_protocol import Report
from trainwright.runner.progress.history import ProgressHistory, read_history
from trainwright.runner.progress.server import ProgressServer


class Inbox:
    """Receives reports as the supervisor does, and lets a test wait for one."""

    def __init__(self) -> None:
        self.percents: list[int | None] = []
        self._arrived = asyncio.Condition()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def __call__(self, report: Report) -> None:
        async with self._arrived:
            self.percents.append(report.status.progress_percentage)
            self._arrived.notify_all()
        await self.may_go_on.wait()

    async def wait_for(self, percent: int) -> None:
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: percent in self.percents)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
async def server(tmp_path: Path, inbox: Inbox) -> AsyncIterator[ProgressServer]:
    history = ProgressHistory(tmp_path / "progress.jsonl")
    async with ProgressServer("team", "demo", tmp_path / "token", inbox, history) as running:
        yield running


def token_of(server: ProgressServer) -> str:
    return Path(server.environment["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text()


@asynccontextmanager
async def connect(server: ProgressServer) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(server)
    try:
        yield client
    finally:
        await client.close()


async def test_a_report_is_answered_handed_on_and_kept_in_the_history(
    server: ProgressServer, inbox: Inbox, tmp_path: Path
):
    async with connect(server) as client:
        client.post(
            build_report(progressPercentage=42, metrics=[{"name": "loss", "value": "0.5"}]), token_of(server)
        )
        response = await client.read_response()
    assert (response.code, response.headers["content-type"]) == (200, "application/json")
    assert response.body == build_report(progressPercentage=42, metrics=[{"name": "loss", "value": "0.5"}])
    await inbox.wait_for(42)
    assert [entry.metrics for entry in read_history(tmp_path / "progress.jsonl")] == [{"loss": 0.5}]


async def test_the_token_is_in_a_file_of_the_user_alone_and_goes_away_with_the_server(tmp_path: Path):
    server = ProgressServer("team", "demo", tmp_path / "token", Inbox())
    async with server:
        assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
        assert len(token_of(server)) == 64
    assert not (tmp_path / "token").exists()


async def test_what_connects_before_the_start_is_answered_after_it(tmp_path: Path):
    inbox = Inbox()
    server = ProgressServer("team", "demo", tmp_path / "token", inbox)
    async with connect(server) as client:
        client.post(build_report(progressPercentage=1), token_of(server))
        async with server:
            assert (await client.read_response()).code == 200
            await inbox.wait_for(1)


async def test_a_connection_takes_one_request_after_another(server: ProgressServer):
    async with connect(server) as client:
        for percent in (1, 2, 3):
            client.post(build_report(progressPercentage=percent), token_of(server))
            assert (await client.read_response()).body["trainerStatus"]["progressPercentage"] == percent


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_another_method_is_not_found_even_with_the_right_token(server: ProgressServer, method: str):
    async with connect(server) as client:
        client.post(b"", token_of(server), method=method)
        assert ((await client.read_response()).body)["message"] == "Not found"


async def test_another_jobs_path_is_not_found(server: ProgressServer):
    async with connect(server) as client:
        client.post(build_report(), token_of(server), path=urlsplit(server.url).path.replace("demo", "other"))
        assert (await client.read_response()).code == 404


@pytest.mark.parametrize("token", ["", "wrong", "ü"])
async def test_a_wrong_token_is_forbidden_whatever_the_body(server: ProgressServer, inbox: Inbox, token: str):
    async with connect(server) as client:
        client.post(b"garbage", token)
        response = await client.read_response()
    assert (response.code, response.body["message"]) == (403, "Forbidden")
    assert "www-authenticate" not in response.headers
    assert inbox.percents == []


async def test_a_declared_megabyte_is_refused_before_the_token_is_looked_at(server: ProgressServer):
    async with connect(server) as client:
        client.post(b"x" * 1_000_000, "wrong")
        response = await client.read_response()
        assert (response.code, response.body["message"]) == (413, "Payload too large")
        assert response.headers["connection"] == "close"


async def test_a_megabyte_in_chunks_is_an_invalid_payload(server: ProgressServer):
    async with connect(server) as client:
        head = (
            f"POST {urlsplit(server.url).path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
            f"Authorization: Bearer {token_of(server)}\r\n\r\n"
        )
        client.send(head.encode() + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 16 + b"0\r\n\r\n")
        response = await client.read_response()
        assert (response.code, response.body["message"]) == (422, "Invalid payload")
        assert response.headers["connection"] == "close"


async def test_a_body_in_chunks_after_expect_is_read(server: ProgressServer, inbox: Inbox):
    body = json.dumps(build_report(progressPercentage=9)).encode()
    async with connect(server) as client:
        client.send(
            f"POST {urlsplit(server.url).path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
            f"Expect: 100-continue\r\nAuthorization: bearer {token_of(server)}\r\n\r\n".encode()
        )
        assert (await client.read_response()).code == 100
        for part in (body[:10], body[10:]):
            client.send(f"{len(part):x};ext=1\r\n".encode() + part + b"\r\n")
        client.send(b"0\r\nTrailer: 1\r\n\r\n")
        assert (await client.read_response()).code == 200
        await inbox.wait_for(9)


async def test_a_client_of_http_1_0_gets_its_answer_and_the_end(server: ProgressServer):
    async with connect(server) as client:
        client.send(f"POST {urlsplit(server.url).path} HTTP/1.0\r\n\r\n".encode())
        assert (await client.read_response()).code == 403
        assert await client.is_closed()


MALFORMED = {
    "no http": b"hello\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a negative length": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a folded header": b"POST / HTTP/1.1\r\nA: 1\r\n b\r\n\r\n",
    "a blank before the colon": b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
    "an endless line": b"POST /" + b"x" * 40_000,
    "headers without end": b"POST / HTTP/1.1\r\n" + b"A: 1\r\n" * 101,
    "a chunk without size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk of a negative size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "a chunk longer than its size": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_not_http_is_a_bad_request_and_the_end_of_the_connection(
    server: ProgressServer, data: bytes
):
    async with connect(server) as client:
        client.send(data)
        assert (await client.read_response()).code == 400
        assert await client.is_closed()


async def test_a_client_that_goes_away_in_the_middle_disturbs_nobody(server: ProgressServer):
    for data in (b"", b"POST", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123"):
        async with connect(server) as client:
            client.send(data)
    async with connect(server) as client:
        client.post(build_report(), token_of(server))
        assert (await client.read_response()).code == 200


async def test_reports_that_arrive_while_one_is_stored_replace_each_other(
    server: ProgressServer, inbox: Inbox, tmp_path: Path
):
    """1. Storing 1 % takes long. 2. Meanwhile 2, 3 and 4 % arrive and are answered. 3. Only 4 % is stored."""
    inbox.may_go_on.clear()
    async with connect(server) as client:
        for percent in (1, 2, 3, 4):
            client.post(build_report(progressPercentage=percent), token_of(server))
            assert (await client.read_response()).code == 200
            if percent == 1:
                await inbox.wait_for(1)
    inbox.may_go_on.set()
    await inbox.wait_for(4)
    assert inbox.percents == [1, 4]
    assert [e.progress_percentage for e in read_history(tmp_path / "progress.jsonl")] == [1, 2, 3, 4]


async def test_the_last_report_is_handed_on_before_the_server_is_closed(tmp_path: Path, inbox: Inbox):
    async with ProgressServer("team", "demo", tmp_path / "token", inbox) as server, connect(server) as client:
        for percent in (1, 100):
            client.post(build_report(progressPercentage=percent), token_of(server))
            await client.read_response()
    assert inbox.percents[-1] == 100


async def test_a_report_that_waits_for_one_before_it_is_handed_on_before_the_server_is_closed(
    tmp_path: Path, inbox: Inbox
):
    """1. Storing 1 % takes long. 2. Meanwhile 100 % arrives, and the server is to close. 3. Both arrive."""
    inbox.may_go_on.clear()
    server = ProgressServer("team", "demo", tmp_path / "token", inbox)
    await server.start()
    async with connect(server) as client:
        for percent in (1, 100):
            client.post(build_report(progressPercentage=percent), token_of(server))
            assert (await client.read_response()).code == 200
            await inbox.wait_for(1)
    closing = asyncio.create_task(server.close())
    for _ in range(20):  # as far as it gets by itself
        await asyncio.sleep(0)
    inbox.may_go_on.set()
    await closing
    assert inbox.percents == [1, 100]


async def test_an_older_report_is_dropped(server: ProgressServer, inbox: Inbox):
    async with connect(server) as client:
        client.post(build_report(progressPercentage=50), token_of(server))
        await client.read_response()
        old = {"trainerStatus": {"lastUpdatedTime": "2026-03-01T11:00:00Z", "progressPercentage": 10}}
        client.post(old, token_of(server))
        assert (await client.read_response()).code == 200
    await server.close()
    assert inbox.percents == [50]


async def test_a_receiver_that_fails_does_not_end_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    received = []
    failed = asyncio.Event()

    async def on_report(report: Report) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("disk full")
        received.append(report.status.progress_percentage)

    running = ProgressServer("team", "demo", tmp_path / "token", on_report)
    async with running as server, connect(server) as client:
        client.post(build_report(progressPercentage=1), token_of(server))
        await client.read_response()
        async with asyncio.timeout(10):
            await failed.wait()
        client.post(build_report(progressPercentage=2), token_of(server))
        await client.read_response()
    assert received == [2]
    assert "disk full" in capsys.readouterr().out


async def test_a_history_that_cannot_be_written_does_not_lose_the_report(
    tmp_path: Path, inbox: Inbox, capsys: pytest.CaptureFixture[str]
):
    history = ProgressHistory(tmp_path / "absent" / "progress.jsonl")
    running = ProgressServer("team", "demo", tmp_path / "token", inbox, history)
    async with running as server, connect(server) as client:
        client.post(build_report(progressPercentage=5), token_of(server))
        assert (await client.read_response()).code == 200
    assert inbox.percents == [5]
    assert "progress.jsonl" in capsys.readouterr().out


async def test_open_connections_end_with_the_server(tmp_path: Path):
    server = ProgressServer("team", "demo", tmp_path / "token", Inbox())
    async with server:
        clients = [await RawClient.connect(server) for _ in range(5)]
    for client in clients:
        assert await client.is_closed()
        await client.close()


async def test_a_crowd_of_connections_does_not_use_up_the_descriptors(server: ProgressServer):
    clients = [await RawClient.connect(server) for _ in range(70)]
    closed = [asyncio.create_task(client.is_closed()) for client in clients]
    done, waiting = await asyncio.wait(closed, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert done
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for client in clients:
        await client.close()


def test_urllib_as_the_public_clients_use_it_is_understood(tmp_path: Path):
    """The public SDK and Hugging Face's callback post with `urllib.request`; so does this child process."""
    program = """
import json, os, sys, urllib.request
request = urllib.request.Request(
    os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
    data=sys.stdin.buffer.read(),
    headers={"Authorization": "Bearer " + open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read(),
             "Content-Type": "application/json"},
    method="POST",
)
with urllib.request.urlopen(request, timeout=10) as response:
    sys.exit(0 if response.status == 200 else 1)
"""

    async def run() -> list[int | None]:
        inbox = Inbox()
        async with ProgressServer("team", "demo", tmp_path / "token", inbox) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, stdin=subprocess.PIPE, env=dict(server.environment)
            )
            await process.communicate(json.dumps(build_report(progressPercentage=77)).encode())
            assert process.returncode == 0
        return inbox.percents

    assert asyncio.run(run()) == [77]
