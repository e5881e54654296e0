"""The client that mpirun calls instead of ssh and the server in a node's pod, as real processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.executors.pods import until_exists, until_true
from trainwright.runner.executors.remote_hosts import RemoteHosts
from trainwright.runner.executors.remote_start import natural_key, parse_words, read_hosts

BOUND_SECONDS = 60
HOSTS = """\
127.1.0.1 demo-launcher-0-0.demo demo-launcher-0-0 demo-launcher-0-0.demo.default.svc
127.1.0.2 demo-node-0-0.demo demo-node-0-0 demo-node-0-0.demo.default.svc
"""


class Pair:
    """A server in the pod demo-node-0-0 and the client of demo-launcher-0-0."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "shared"
        self._node = RemoteHosts(self.folder, "demo-node-0-0")
        self._node.prepare()
        self._directory = root / "node's directory"
        self._directory.mkdir()
        self._program = RemoteHosts(self.folder, "demo-launcher-0-0").write_client(root, HOSTS)
        self.log = root / "log"
        self.server: subprocess.Popen[bytes] | None = None

    def serve(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                self._node.build_server_command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._directory,
                env={"PATH": os.environ["PATH"], "WHOSE": "node"},
            )
        return self.server

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the client, as mpirun does."""
        return subprocess.Popen(
            [self._program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "WHOSE": "launcher"},
            text=True,
        )

    def run(self, *words: str, text: str = "") -> tuple[int, str, str]:
        """Run the client to its end; return exit code, output and errors."""
        with self.start(*words) as client:
            output, errors = client.communicate(text, timeout=BOUND_SECONDS)
        return client.returncode, output, errors


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    if made.server is not None:
        made.server.kill()
        made.server.wait(BOUND_SECONDS)


@pytest.fixture
def serving(pair: Pair) -> Pair:
    pair.serve()
    return pair


@pytest.mark.parametrize(
    ("words", "found"),
    {
        "Open MPI 4, with arguments for ssh": (
            ["-o", "ConnectionAttempts=10", "h", "orted", "-mca", "x", "1"],
            ("h", "orted -mca x 1"),
        ),
        "Open MPI 5": (["h", "prted --daemonize"], ("h", "prted --daemonize")),
        "MPICH": (["-x", "h", '"/bin/proxy"', "--port", "1"], ("h", '"/bin/proxy" --port 1')),
        "Intel MPI": (["-q", "-x", "h", "proxy"], ("h", "proxy")),
        "a value attached to its option": (["-p2222", "-oUser=x", "h", "c"], ("h", "c")),
        "flags together, the last with a value": (["-qxp", "2222", "h", "c"], ("h", "c")),
        "a user": (["-l", "me", "you@h", "c"], ("h", "c")),
        "the end of options": (["-q", "--", "h", "-c"], ("h", "-c")),
    }.values(),
)
def test_words_are_taken_as_ssh_takes_them(words: list[str], found: tuple[str, str]) -> None:
    assert parse_words(words) == found


@pytest.mark.parametrize("words", [[], ["-q"], ["h"], ["-p", "h"]])
def test_words_without_a_command_end_as_ssh_does_when_it_cannot_connect(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_words(words)
    assert ended.value.code == 255
    assert "a host and a command are needed" in capsys.readouterr().err


def test_a_host_is_known_by_every_name_and_its_address(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(HOSTS)
    hosts = read_hosts(str(tmp_path / "hosts"))
    names = ("127.1.0.2", "demo-node-0-0", "demo-node-0-0.demo", "demo-node-0-0.demo.default.svc")
    assert {name for name, host in hosts.items() if host == "demo-node-0-0"} == set(names)
    assert len(hosts) == 8


def test_hosts_are_listed_in_the_order_of_their_numbers() -> None:
    assert sorted(["n-10", "n-9", "a-1"], key=natural_key) == ["a-1", "n-9", "n-10"]


def test_a_command_reads_and_writes_the_streams_of_its_client(serving: Pair) -> None:
    ended = serving.run("-x", "demo-node-0-0.demo", "cat; echo problem >&2; exit 17", text="a line\n" * 9999)
    assert ended == (17, "a line\n" * 9999, "problem\n")


def test_a_command_has_the_directory_and_the_environment_of_the_node(serving: Pair, tmp_path: Path) -> None:
    ended = serving.run("demo-node-0-0", "pwd;", "echo", '"$WHOSE"')
    assert ended == (0, f"{tmp_path}/node's directory\nnode\n", "")


def test_a_signal_that_ends_a_command_counts_from_128(serving: Pair) -> None:
    assert serving.run("demo-node-0-0", "kill -9 $$")[0] == 137


def test_the_launchers_own_host_needs_no_server(pair: Pair) -> None:
    assert pair.run("demo-launcher-0-0.demo", "echo $WHOSE; exit 3") == (3, "launcher\n", "")


def test_a_signal_to_the_client_reaches_the_command_and_its_children(serving: Pair) -> None:
    # A shell that is still on its way to `sleep` would miss the signal: it says so once it has no trap left.
    child = "trap 'echo child told; exit' TERM; sh -c 'echo began; exec sleep 60' & wait"
    script = f"trap 'echo told; exit 5' TERM; ({child}) & wait"
    with serving.start("demo-node-0-0", script) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "began\n"
        client.terminate()
        output, _ = client.communicate(timeout=BOUND_SECONDS)
    assert client.returncode == 5
    assert sorted(output.splitlines()) == ["child told", "told"]


async def test_a_command_goes_on_when_its_client_is_killed(serving: Pair, tmp_path: Path) -> None:
    """As where ssh is cut off: it is MPI's own connections that tell its daemons."""
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    with serving.start("demo-node-0-0", f"echo began; read word < {go}; echo $word > {done}") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "began\n"
        client.kill()
    go.write_text("further\n")
    assert await until_exists(done) == "further\n"


def test_commands_run_side_by_side(serving: Pair) -> None:
    clients = [serving.start("demo-node-0-0", f"read word; echo {number} $word") for number in range(8)]
    outputs = [client.communicate("go\n", timeout=BOUND_SECONDS)[0] for client in reversed(clients)]
    assert outputs == [f"{number} go\n" for number in reversed(range(8))]


async def test_a_client_waits_for_a_server_that_comes_later(pair: Pair) -> None:
    with pair.start("demo-node-0-0", "echo here") as client:
        pair.serve()
        assert client.communicate(timeout=BOUND_SECONDS)[0] == "here\n"


def test_a_host_that_is_no_pod_of_the_job_is_refused_at_once(serving: Pair) -> None:
    code, output, errors = serving.run("elsewhere", "true")
    assert (code, output) == (255, "")
    assert errors == (
        "trainwright: remote start: no pod of this job is called elsewhere; "
        "its hosts are demo-launcher-0-0 demo-node-0-0\n"
    )


def test_a_server_that_is_killed_is_noted_as_lost(serving: Pair) -> None:
    with serving.start("demo-node-0-0", "echo began; read word") as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "began\n"
        assert serving.server is not None
        serving.server.kill()
        _, errors = client.communicate(timeout=BOUND_SECONDS)
    assert client.returncode == 255
    assert "the pod demo-node-0-0 ended before what was started in it" in errors
    assert RemoteHosts(serving.folder, "demo-launcher-0-0").list_others(".lost") == {"demo-node-0-0"}


@pytest.fixture
def scripted(pair: Pair) -> Iterator[socket.socket]:
    """A listening socket where a server should be, with which a test does as it likes."""
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(pair.folder):
            listener.bind("demo-node-0-0.socket")
        listener.listen()
        listener.settimeout(BOUND_SECONDS)
        yield listener


def expect_lost(pair: Pair, client: subprocess.Popen[str]) -> None:
    _, errors = client.communicate(timeout=BOUND_SECONDS)
    assert (client.returncode, errors) == (
        255,
        "trainwright: remote start: the pod demo-node-0-0 ended before what was started in it\n",
    )
    assert RemoteHosts(pair.folder, "demo-launcher-0-0").list_others(".lost") == {"demo-node-0-0"}


def test_a_server_that_ends_before_it_reads_a_signal_is_noted_as_lost(
    pair: Pair, scripted: socket.socket
) -> None:
    """1. A command runs. 2. Its client passes a signal on. 3. The server is killed and never reads it."""
    with pair.start("demo-node-0-0", "sleep 60") as client:
        connection, _ = scripted.accept()
        with connection:
            connection.settimeout(BOUND_SECONDS)
            assert connection.makefile("rb", buffering=0).read(4096) == b'{"line": "sleep 60"}\n'
            client.terminate()
            assert connection.recv(4096, socket.MSG_PEEK) == b'{"signal": 15}\n'
        expect_lost(pair, client)


def test_a_server_that_ends_before_it_looks_at_its_client_is_noted_as_lost(
    pair: Pair, scripted: socket.socket
) -> None:
    with pair.start("demo-node-0-0", "true") as client:
        ready, _, _ = select.select([scripted], [], [], BOUND_SECONDS)
        assert ready
        scripted.close()
        expect_lost(pair, client)


def test_a_server_that_is_being_killed_is_lost_although_it_can_be_connected_to(serving: Pair) -> None:
    """The launcher may notice the end of a pod before the last of its processes has gone."""
    assert serving.run("demo-node-0-0", "true")[0] == 0
    assert serving.server is not None
    serving.server.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        fault = threads.submit(RemoteHosts(serving.folder, "demo-launcher-0-0").find_fault, {}, 0)
        serving.server.kill()
        assert fault.result(BOUND_SECONDS) == (
            "mpirun lost what it had started on demo-node-0-0: the pod ended before the launcher"
        )


async def test_a_server_that_is_told_to_end_waits_for_what_runs_daemons_included(
    serving: Pair, tmp_path: Path
) -> None:
    """1. A daemon leaves its parent. 2. SIGTERM: nobody can connect any more. 3. The daemon ends, and so
    does the server."""
    go, began = tmp_path / "go", tmp_path / "began"
    os.mkfifo(go)
    daemon = f"setsid sh -c 'echo x > {began}; read word < {go}' < /dev/null > /dev/null 2>&1 &"
    assert serving.run("demo-node-0-0", daemon)[0] == 0
    await until_exists(began)
    server, name = serving.server, serving.folder / "demo-node-0-0.socket"
    assert server is not None
    server.send_signal(signal.SIGTERM)
    await until_true(lambda: not name.exists())
    assert server.poll() is None
    go.write_text("end\n")
    assert server.wait(BOUND_SECONDS) == 128 + signal.SIGTERM


async def test_only_the_user_of_the_job_reaches_the_server(serving: Pair) -> None:
    name = serving.folder / "demo-node-0-0.socket"
    await until_true(name.exists)
    assert stat.S_IMODE(serving.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(name.stat().st_mode) == 0o600


@pytest.mark.root
def test_another_user_who_finds_the_socket_open_is_refused_all_the_same(
    serving: Pair, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can try as another user")
    assert serving.run("demo-node-0-0", "true")[0] == 0  # it serves
    (serving.folder / "demo-node-0-0.asked").unlink()
    serving.folder.chmod(0o755)
    (serving.folder / "demo-node-0-0.socket").chmod(0o666)
    program = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX); s.connect('demo-node-0-0.socket');"
        's.sendall(b\'{"line": "touch stolen"}\\n\'); print(s.recv(99))'
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, serving.folder],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.stdout == "b''\n" or "BrokenPipe" in answer.stderr or "ConnectionReset" in answer.stderr
    assert RemoteHosts(serving.folder, "demo-launcher-0-0").list_others(".asked") == set()


@pytest.mark.parametrize(
    "message", [b"no json\n", b'{"line": "true"}\n', b'{"signal": 15}\n', b"[]\n", b"null\n"]
)
async def test_a_server_survives_what_is_no_request(serving: Pair, message: bytes) -> None:
    """Also a command without the three descriptors, and a signal without a command."""
    name = serving.folder / "demo-node-0-0.socket"
    await until_true(name.exists)
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as connection:
        with contextlib.chdir(serving.folder):
            connection.connect(name.name)
        connection.settimeout(BOUND_SECONDS)
        connection.sendall(message)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert Path.cwd() == here
    assert serving.run("demo-node-0-0", "echo still here")[1] == "still here\n"


def test_a_state_directory_may_be_deep_and_its_path_have_spaces(tmp_path: Path) -> None:
    """A socket's path has 108 characters; Open MPI takes the path of the client apart at spaces."""
    root = tmp_path / ("deep " * 20) / ("er" * 40)
    root.mkdir(parents=True)
    pair = Pair(root)
    server = pair.serve()
    try:
        assert pair.run("demo-node-0-0", "echo here") == (0, "here\n", "")
    finally:
        server.kill()
        server.wait(BOUND_SECONDS)
