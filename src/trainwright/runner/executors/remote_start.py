"""Starts programs in other pods of a job, in place of ssh: what `mpirun` calls, and what answers in the pod.

Like `pod_init` it runs with `python -I -S`, imports the standard library only and nothing of ours.

    mpirun -> client(host, shell line) --- <folder>/<host>.socket --- server (stands for sshd) -> /bin/sh -c

The client hands its own standard input, output and error over the socket (SCM_RIGHTS): what is started reads
and writes mpirun's pipes themselves, so nothing is copied, and nothing is lost when the client ends first. It
stays until the command has ended, passes signals on and exits with the command's code; 255, as ssh, where the
host cannot be had. The server starts the command with its own environment, directory and namespaces, in a
session of its own, and goes on until it is told to end.

    -> {"line": "..."}        with three descriptors; one line of JSON, as all that follows
    <- {"exit": 17}           128+signal where a signal ended it
    -> {"signal": 15}         for the command and its children
    <- {"error": "..."}       it could not be started
    -> {"ask": true}          whether the server is there: it accepts connections until the last moment
    <- {"here": true}

Only the user who runs the job can connect: the folder is mode 0700, the socket 0600, and the kernel is asked
who it is that connects.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time `typing` would be a good part of the start-up
    from collections.abc import Iterable
    from typing import Any, NoReturn

    Message = dict[str, Any]

# Options of ssh that take a value, attached or as the next word; all others are flags. Source: ssh(1).
OPTIONS_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
# ssh's own code for "could not connect"; what mpirun makes of it is a message that names the host.
UNREACHABLE = 255
# A pod that starts at the same time as its launcher takes a moment; `ConnectionAttempts=10` is as patient.
PATIENCE_SECONDS = 30.0
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """`serve FOLDER HOST`, or `start FOLDER HOST HOSTS_FILE [ssh options] host word...`."""
    verb, folder, host, *words = sys.argv[2:]
    if verb == "serve":
        Server(folder, host).run()
    else:
        start(folder, host, *words)


def start(folder: str, own_host: str, hosts_file: str, *words: str) -> NoReturn:
    """Run the words as a shell line on the host that stands before them, and exit as it does."""
    name, line = parse_words(list(words))
    hosts = read_hosts(hosts_file)
    if name not in hosts:
        known = " ".join(sorted(set(hosts.values()), key=natural_key)[:16])
        fail(f"no pod of this job is called {name}; its hosts are {known}")
    host = hosts[name]
    if host == own_host:
        # Open MPI does so with its own host where it is told to keep full names.
        os.execv("/bin/sh", ["sh", "-c", line])  # noqa: S606
    connection = connect(folder, host)
    wake = watch_signals(FORWARDED)
    descriptors = struct.pack("3i", 0, 1, 2)
    data = json.dumps({"line": line}).encode() + b"\n"
    try:
        sent = connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        connection.sendall(data[sent:])
        answer = wait_for_answer(connection, wake)
    except OSError:  # what it was last sent it will not read any more
        answer = b""
    if not answer:
        touch(f"{host}.lost")
        fail(f"the pod {host} ended before what was started in it")
    message = json.loads(answer)
    if "error" in message:
        fail(message["error"])
    os._exit(message["exit"])


def wait_for_answer(connection: socket.socket, wake: int) -> bytes:
    """Return the line that the server sends at the end, empty where it ended; pass on signals meanwhile."""
    poll = select.poll()
    for fd in (connection.fileno(), wake):
        poll.register(fd, select.POLLIN)
    answer = b""
    while True:
        for fd, _ in poll.poll():
            if fd == wake:
                for number in os.read(wake, 4096):
                    _send(connection, {"signal": number})
                continue
            data = connection.recv(1 << 16)
            answer += data
            if not data or b"\n" in data:
                return answer


def watch_signals(numbers: Iterable[int]) -> int:
    """Return a descriptor from which the numbers of these signals are read as they come.

    A handler of Python runs between two of its own instructions: one for a signal that comes just before a
    system call blocks would run only after that has returned.
    """
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return wake_read


def parse_words(words: list[str]) -> tuple[str, str]:
    """Return host and shell line of an ssh command line, whose words ssh joins with spaces."""
    ahead = list(words)
    while ahead and ahead[0].startswith("-") and ahead[0] != "--":
        letters = ahead.pop(0)[1:]
        for position, letter in enumerate(letters):
            if letter in OPTIONS_WITH_VALUE:
                if position == len(letters) - 1 and ahead:
                    ahead.pop(0)
                break
    if ahead and ahead[0] == "--":
        ahead.pop(0)
    if len(ahead) < 2:
        fail(f"a host and a command are needed, as for ssh; called with {' '.join(words) or 'nothing'}")
    return ahead[0].rpartition("@")[2], " ".join(ahead[1:])


def read_hosts(hosts_file: str) -> dict[str, str]:
    """Return every name and address of a pod of this job -> its host name, from lines as in /etc/hosts."""
    hosts: dict[str, str] = {}
    with open(hosts_file, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 (start-up time)
        for line in file:
            words = line.split()
            if len(words) < 2:
                continue
            host = words[1].partition(".")[0]
            for word in words:
                hosts.setdefault(word, host)
    return hosts


def natural_key(host: str) -> list[tuple[bool, int, str]]:
    """Sort node-0-10 after node-0-9."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in host.split("-")]


def connect(folder: str, host: str) -> socket.socket:
    """Return a connection to the server in that pod; exit with ssh's code when there is none in time."""
    os.chdir(folder)  # a socket's path has 108 characters, a state directory may need more
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(f"{host}.socket")
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                fail(f"nothing in the pod {host} answers ({error.strerror}); is its node container running?")
            time.sleep(0.02)
        else:
            return connection


def touch(path: str) -> None:
    """Make an empty file, for those who look at the folder later."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def fail(message: str) -> NoReturn:
    """Say what is wrong where ssh would, and end as ssh does when it cannot connect."""
    sys.stderr.write(f"trainwright: remote start: {message}\n")
    sys.exit(UNREACHABLE)


class Server:
    """What runs in a node's pod in place of sshd."""

    def __init__(self, folder: str, host: str) -> None:
        self._folder = folder
        self._host = host
        self._commands: dict[int, socket.socket | None] = {}  # pid -> who waits for its end
        self._connections: dict[int, Connection] = {}
        self._poll = select.poll()
        self._is_ending = False

    def run(self) -> NoReturn:
        """Answer until SIGTERM, then until nothing that was started is left; exit as that signal does.

        Nothing is passed on to what runs: the launcher gets the same signal at the same time, and it is
        mpirun that knows how its ranks are to end.
        """
        become_subreaper()  # daemons of MPI leave their parent: their end is to be seen all the same
        wake = watch_signals((signal.SIGCHLD, signal.SIGTERM))
        listener = self._listen()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(listener, select.POLLIN)
        self._say(f"{self._host} is ready to start what mpirun asks for")
        while not (self._is_ending and not self._has_children()):
            for fd, _ in self._poll.poll():
                if fd == wake:
                    if signal.SIGTERM in os.read(wake, 4096):
                        self._stop_listening(listener)
                    self._reap()
                elif fd == listener.fileno():
                    self._accept(listener)
                elif fd in self._connections:
                    self._read(self._connections[fd])
        os._exit(128 + signal.SIGTERM)

    def _listen(self) -> socket.socket:
        """Return the listening socket; when its name is there it answers."""
        working_directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        os.chdir(self._folder)
        listener = socket.socket(socket.AF_UNIX)
        draft, name = f".{self._host}.{os.getpid()}", f"{self._host}.socket"
        before = os.umask(0o177)
        try:
            listener.bind(draft)
        finally:
            os.umask(before)
        listener.listen(128)
        listener.setblocking(False)
        os.rename(draft, name)  # noqa: PTH104 (start-up time)
        os.fchdir(working_directory)
        os.close(working_directory)
        return listener

    def _stop_listening(self, listener: socket.socket) -> None:
        if not self._is_ending:
            self._is_ending = True
            self._poll.unregister(listener)
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{self._host}.socket")  # noqa: PTH108
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:  # the client has gone again
            return
        if not is_own_user(accepted):
            accepted.close()
            return
        # One that has its descriptor may have closed a moment ago, and be reported as readable once more.
        accepted.setblocking(False)
        connection = Connection(accepted)
        self._connections[accepted.fileno()] = connection
        self._poll.register(accepted, select.POLLIN)

    def _read(self, connection: Connection) -> None:
        messages, is_closed = connection.read()
        for message in messages:
            if "line" in message and not connection.command:
                self._start(connection, message["line"])
            elif "signal" in message and connection.command in self._commands:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(connection.command, message["signal"])
            elif "ask" in message:
                _send(connection.socket, {"here": True})
        if is_closed:
            # mpirun or its client is gone. What was started is told by mpirun's own connections, as it is
            # where ssh is cut off; to end it here would end daemons that still want to clean up.
            self._forget(connection)

    def _start(self, connection: Connection, line: str) -> None:
        descriptors = connection.descriptors
        connection.descriptors = []
        try:
            if len(descriptors) != 3:
                raise OSError(0, "three descriptors are needed")
            pid = os.posix_spawn(
                find_shell(),
                ["sh", "-c", line],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(descriptors)],
                setsid=True,
                setsigmask=(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as error:
            _send(connection.socket, {"error": f"cannot start a shell in {self._host}: {error.strerror}"})
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        touch(f"{self._folder}/{self._host}.asked")
        connection.command = pid
        self._commands[pid] = connection.socket
        self._say(f"started: {line if len(line) <= 100 else line[:100] + '...'}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._commands:
                code = os.waitstatus_to_exitcode(status)
                if code:
                    self._say(f"ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}")
                waiting = self._commands.pop(pid)
                if waiting is not None:
                    _send(waiting, {"exit": code if code >= 0 else 128 - code})
                    self._forget(self._connections[waiting.fileno()])

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _forget(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        self._poll.unregister(fd)
        del self._connections[fd]
        if connection.command in self._commands:
            self._commands[connection.command] = None
        connection.close()

    def _say(self, text: str) -> None:
        """Write into the log of the node, as sshd does."""
        with contextlib.suppress(OSError):
            os.write(1, f"remote start: {text}\n".encode(errors="replace"))


class Connection:
    """One client of the server. `command` is what was started for it, 0 before."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.command = 0
        self.descriptors: list[int] = []
        self._pending = b""

    def read(self) -> tuple[list[Message], bool]:
        """Return what has come, and whether the client is gone. Call when readable."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                1 << 16, socket.CMSG_SPACE(3 * 4), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except BlockingIOError:
            return [], False
        except OSError:
            return [], True
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.descriptors += [fd for (fd,) in struct.iter_unpack("i", content)]
        for fd in self.descriptors:
            os.set_inheritable(fd, False)
        *lines, self._pending = (self._pending + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return [], True
        return [message for message in messages if isinstance(message, dict)], not data

    def close(self) -> None:
        """Close what is still held for the client."""
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []
        self.socket.close()


def _send(connection: socket.socket, message: Message) -> None:
    # Whoever is gone does not mind.
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def is_own_user(accepted: socket.socket) -> bool:
    """Say whether the one that connects is the user of this process, as far as this system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the modes of folder and socket have seen to it
    data = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", data)
    return bool(uid == os.geteuid())


def find_shell() -> str:
    """Return the shell that reads the line: mpirun writes it for the user's login shell, as sshd starts it.

    Only the C shells need another language than sh; a login shell may also be none (nologin).
    """
    import pwd

    with contextlib.suppress(KeyError):
        shell = pwd.getpwuid(os.geteuid()).pw_shell
        if shell.rpartition("/")[2] in ("csh", "tcsh") and os.access(shell, os.X_OK):
            return shell
    return "/bin/sh"


def become_subreaper() -> None:
    """Make orphans of what is started here children of this process, where the system knows how to."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
