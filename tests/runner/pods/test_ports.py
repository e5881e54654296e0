"""Free ports of jobs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.runner.pods import ports
from trainwright.runner.pods.job_ports import JobPorts
from trainwright.runner.pods.ports import FIRST_PORT, LAST_PORT, NoFreePort, is_port_free, reserve_port


def test_a_reserved_port_is_free_and_nobody_elses(tmp_path: Path) -> None:
    reservations = [reserve_port(tmp_path) for _ in range(50)]
    numbers = {reservation.port for reservation in reservations}

    assert len(numbers) == 50
    assert all(FIRST_PORT <= number <= LAST_PORT for number in numbers)
    assert {file.name for file in (tmp_path / "ports").iterdir()} == set(map(str, numbers))
    for reservation in reservations:
        reservation.release()
        reservation.release()
    assert list((tmp_path / "ports").iterdir()) == []


def test_a_port_is_given_back_when_its_holder_is_killed(tmp_path: Path) -> None:
    """The lock file stays, and is nobody's."""
    code = (
        "import os, sys; from pathlib import Path; from trainwright.runner.pods.ports import reserve_port;"
        f"r = reserve_port(Path({str(tmp_path)!r})); print(r.port, flush=True); os.kill(os.getpid(), 9)"
    )
    port = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).stdout)
    file = tmp_path / "ports" / str(port)
    assert file.exists()
    reservation = ports._try_reserve(file, port)
    assert reservation is not None
    reservation.release()


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")],
)
def test_a_port_that_somebody_listens_on_is_not_free(family: int, address: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"NOT TESTED: this machine has no {address}")
        server.listen()
        assert not is_port_free(server.getsockname()[1])


def test_when_no_port_is_free_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST_PORT", taken)
        monkeypatch.setattr(ports, "LAST_PORT", taken)
        with pytest.raises(NoFreePort, match="end programs that listen"):
            reserve_port(tmp_path)
    assert list((tmp_path / "ports").iterdir()) == []


def test_a_job_keeps_its_port_until_somebody_else_listens_there(tmp_path: Path) -> None:
    ports = JobPorts(tmp_path)
    first, other = ports.get(29500), ports.get(29500, "demo-node-0-1")
    ports.check()
    assert (ports.get(29500), ports.get(29500, "demo-node-0-1")) == (first, other)

    with socket.create_server(("127.0.0.1", first)):
        ports.check()
        assert ports.get(29500) != first
        assert ports.get(29500, "demo-node-0-1") == other
    ports.release()
    assert list((tmp_path / "ports").iterdir()) == []


def test_every_port_of_a_job_and_of_its_hosts_is_another_one(tmp_path: Path) -> None:
    ports = JobPorts(tmp_path)
    numbers = {ports.get(port, host) for port in (2222, 29500) for host in ("", "a", "b")}
    assert len(numbers) == 6
    ports.release()


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        reserve_port(tmp_path).release()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
