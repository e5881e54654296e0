"""The program that becomes one container of a pod: namespaces, mounts, PID 1, and the end of all of it.

It runs with `python -I -S`, so that it starts fast and sees nothing of the user's Python; it imports the
standard library only and nothing of ours, and of that little, because every import is paid at every start.
The executor talks to it over a socket that is its standard input: the first line is the configuration, as
JSON (never argv, which every user can read, because the environment holds secrets), the following ones are
requests; it answers with one JSON object a line.

    -> {"signal": 15}                          pass a signal to the main process
    -> {"exec": 7, "argv": [...], "timeoutSeconds": 1}      run a probe beside it
    <- {"started": true}                       the main process runs
    <- {"error": {"reason": ..., "message": ...}}           it could not be started
    <- {"exec": 7, "exitCode": 0}
    <- {"exit": 143}                           the main process ended, and no process of it is left

End of file on the socket means that the executor asks for the end at once, or is dead: everything is killed.

With a PID namespace the kernel does the killing: this program stays outside, its child is PID 1, forwards
signals, reaps and answers 128+signal; when it ends the kernel kills the rest before anyone can wait for it.
Without one this program is a subreaper and kills its descendants itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time `typing` would be a fifth of the start-up
    from collections.abc import Callable
    from typing import Any, NoReturn

    Config = dict[str, Any]

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# What statvfs says of a mount -> the flag that a remount must repeat: a user namespace may not drop it.
LOCKED_FLAGS = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: 1024, 2048: 2048, 4096: 1 << 21}
# glibc has no wrapper for pivot_root.
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
START_ERROR = 128  # exit code of a container whose program cannot be started, as containerd gives it
KILL_SECONDS = (
    10.0  # what SIGKILL does not end by then (a setuid program, a hung device) is left to the kernel
)

# Which processes one has started or inherited, where the kernel was built to tell; the first thread's here.
_CHILDREN = "/proc/self/task/{}/children"

_libc = ctypes.CDLL(None, use_errno=True)


class SetUpError(Exception):
    """The container cannot be made; the message is for the user."""


def main() -> NoReturn:
    """Read the configuration, become the container, and exit as its main process did."""
    channel = Channel(0)
    config = channel.read_configuration()
    isolation = config["isolation"]
    # Without a PID namespace this program must outlive the executor for as long as the killing takes.
    if isolation["pid"]:
        _die_with_parent(config["parentPid"])
    try:
        _enter_namespaces(isolation, config["hostName"])
        _perform_mounts(config["mounts"], config["newRoot"])
    except (OSError, SetUpError) as error:
        channel.send({"error": {"reason": "StartError", "message": str(error)}})
        sys.exit(START_ERROR)
    if isolation["pid"]:  # a change of user namespace may have cleared it
        _die_with_parent(config["parentPid"])
    code = Container(channel, config).run()
    channel.send({"exit": code})
    os._exit(code)  # without the interpreter's own clearing up: nothing is buffered


class Channel:
    """JSON lines over the socket to the executor."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        # From here on fd 0 is what the container's processes read: nothing.
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd)
        os.close(null)
        self._pending = b""

    def fileno(self) -> int:
        """For poll."""
        return self._fd

    def close(self) -> None:
        """Close this process's end."""
        os.close(self._fd)

    def read_configuration(self) -> Config:
        """Return the first line; exit when the executor is gone before it came."""
        while b"\n" not in self._pending:
            data = os.read(self._fd, 1 << 20)
            if not data:
                sys.exit(START_ERROR)
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        config: Config = json.loads(line)
        return config

    def read(self) -> bool:
        """Read what has come; return whether the other end is closed. Call when readable."""
        try:
            data = os.read(self._fd, 1 << 16)
        except ConnectionResetError:
            data = b""
        self._pending += data
        return not data

    def take_requests(self) -> list[Config]:
        """Return the requests that were read, once. The first may have come along with the configuration."""
        *lines, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: Config) -> None:
        """Send one message; an executor that is gone does not mind."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(self._fd, data) :]


class StartReport:
    """What a child says about its start: nothing, by closing the pipe with exec, or why it could not."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._error = b""
        self.complete = False

    def read(self) -> bool:
        """Read what has come; return whether that is all."""
        data = os.read(self._fd, 1 << 16)
        self._error += data
        if not data:
            self.complete = True
            os.close(self._fd)
        return self.complete

    @property
    def message(self) -> Config:
        """What to tell the executor."""
        if not self._error:
            return {"started": True}
        return {"error": {"reason": "StartError", "message": self._error.decode(errors="replace")}}


class Container:
    """The main process, what was started beside it, and the loop that watches over both."""

    def __init__(self, channel: Channel, config: Config) -> None:
        self._channel = channel
        self._config = config
        self._private_pids: bool = config["isolation"]["pid"]
        self._execs: dict[int, tuple[int, float]] = {}  # pid -> id of the request, deadline
        self._exit_code: int | None = None
        self._main = 0  # the main process, or PID 1 of its namespace

    def run(self) -> int:
        """Start the main process and return its exit code when no process of the container is left."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Blocked until each process of the chain can act on them, so that none is lost on the way down.
        signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        for number in FORWARDED:
            signal.signal(number, lambda number, _: self._signal_main(number))
        if not self._private_pids and sys.platform == "linux":
            _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
        started_read, started_write = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            self._become_child(started_read, started_write)
        os.close(started_write)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)

        poll = select.poll()
        for fd in (self._channel.fileno(), wake_read, started_read):
            poll.register(fd, select.POLLIN)
        start = StartReport(started_read)
        self._obey()
        while self._exit_code is None:
            for fd, _ in poll.poll(self._next_deadline_ms()):
                if fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                elif fd == started_read:
                    if start.read():
                        poll.unregister(fd)
                        self._channel.send(start.message)
                elif self._listen():
                    poll.unregister(fd)
            self._reap()
            self._end_late_execs()
        if not start.complete:  # a program that ended at once
            while not start.read():
                pass
            self._channel.send(start.message)
        if not self._private_pids:
            kill_descendants(self._main)
        return self._exit_code

    def _become_child(self, started_read: int, started_write: int) -> NoReturn:
        """Be the main process, or PID 1 that has it as a child. Never returns, whatever happens."""
        code = START_ERROR
        try:
            signal.set_wakeup_fd(-1)
            os.close(started_read)
            if self._private_pids:
                code = self._be_init(started_write)
            else:
                _die_with_parent(None)
                self._exec_main(started_write)
        except (OSError, SetUpError) as error:
            _write_start_error(started_write, f"cannot set up the container: {error}")
        finally:
            os._exit(code)

    def _be_init(self, started_write: int) -> int:
        """PID 1: mount /proc, run the main process, reap, and return its exit code."""
        _die_with_parent(None)
        # The parent is outside the namespace, its pid reads as 0: its death before prctl shows in the pipe.
        watch = select.poll()
        watch.register(started_write, 0)
        if watch.poll(0):
            return 128 + signal.SIGKILL
        self._channel.close()
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        # Waited for, not handled: Python runs a handler between two of its own instructions. One for a signal
        # that comes just before a system call blocks would run only after that has returned.
        watched = {*FORWARDED, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        main = os.fork()
        if main == 0:
            self._exec_main(started_write)
        os.close(started_write)
        while True:
            number = signal.sigwait(watched)
            if number != signal.SIGCHLD:
                _kill(main, number)
                continue
            pid = main
            while pid:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == main:
                    return _exit_code(status)

    def _exec_main(self, started_write: int) -> NoReturn:
        try:
            _exec(self._config["argv"], self._config["environment"], self._config["workingDirectory"])
        except SetUpError as error:
            _write_start_error(started_write, str(error))
        finally:
            os._exit(START_ERROR)

    def _listen(self) -> bool:
        """Do what the executor asks; return True when it hung up, after killing everything."""
        has_hung_up = self._channel.read()
        self._obey()
        if has_hung_up:
            if self._private_pids:
                _kill(self._main, signal.SIGKILL)
            else:
                status = kill_descendants(self._main).get(self._main, signal.SIGKILL)
                self._exit_code = _exit_code(status)
        return has_hung_up

    def _obey(self) -> None:
        for request in self._channel.take_requests():
            if "signal" in request:
                self._signal_main(request["signal"])
            elif "exec" in request:
                self._start_exec(request)

    def _signal_main(self, number: int) -> None:
        if self._exit_code is None and self._main:
            _kill(self._main, number)

    def _start_exec(self, request: Config) -> None:
        try:
            pid = os.fork()  # lands in the container's PID namespace, where there is one
        except OSError:  # ENOMEM: PID 1 of the namespace has ended
            self._channel.send({"exec": request["exec"], "exitCode": START_ERROR})
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.dup2(0, 1)
                os.dup2(0, 2)
                _exec(request["argv"], self._config["environment"], self._config["workingDirectory"])
            except SetUpError:
                pass
            finally:
                os._exit(START_ERROR)
        self._execs[pid] = (request["exec"], time.monotonic() + request["timeoutSeconds"])

    def _next_deadline_ms(self) -> int | None:
        if not self._execs:
            return None
        nearest = min(deadline for _, deadline in self._execs.values())
        return max(0, int((nearest - time.monotonic()) * 1000) + 1)

    def _end_late_execs(self) -> None:
        for pid, (_, deadline) in self._execs.items():
            if time.monotonic() >= deadline:
                _kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._exit_code = _exit_code(status)
            elif pid in self._execs:
                request, _ = self._execs.pop(pid)
                self._channel.send({"exec": request, "exitCode": _exit_code(status)})


def kill_descendants(main: int) -> dict[int, int]:
    """Kill and reap every descendant of this process; return the wait status of each child, by pid.

    Two steps, because a program that forks faster than we look would escape one: all are stopped, again and
    again until no new one shows up (what is stopped cannot fork), then killed.
    """
    if sys.platform != "linux":
        # Orphans go to launchd there, out of our sight unless they stayed in the group of `main`.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(main, signal.SIGKILL)
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        stopped: set[int] = set()
        while _stop_descendants(stopped) and time.monotonic() < deadline:
            pass
        for pid in stopped:
            _kill(pid, signal.SIGKILL)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                statuses[pid] = status
        except ChildProcessError:
            break
        time.sleep(0.001)
    return statuses


def _stop_descendants(stopped: set[int]) -> bool:
    """Stop the descendants of this process that are not yet `stopped`; say whether there were any.

    Each is stopped as soon as it is found, the youngest first, and only then asked for its own children.
    """
    list_children = _read_children if os.path.exists(_CHILDREN.format(os.getpid())) else _scan_processes()  # noqa: PTH110
    has_found = False
    ahead = [os.getpid()]
    while ahead:
        for pid in reversed(list_children(ahead.pop())):
            if pid not in stopped:
                _kill(pid, signal.SIGSTOP)
                stopped.add(pid)
                has_found = True
            ahead.append(pid)
    return has_found


def _read_children(parent: int) -> list[int]:
    """Return the children of a process, oldest first, where a kernel with CONFIG_PROC_CHILDREN tells them."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                children += map(int, file.read().split())
    return children


def _scan_processes() -> Callable[[int], list[int]]:
    """Return what tells the children of a process, as they were when all processes were looked at."""
    parents: dict[int, int] = {}
    if sys.platform == "linux":
        for entry in os.listdir("/proc"):  # noqa: PTH208
            if entry.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123 (no pathlib: start-up time)
                        state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state not in (b"Z", b"X"):
                        parents[int(entry)] = int(parent)
    else:
        import subprocess

        command = ["/bin/ps", "-axo", "pid=,ppid=,stat="]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in listing.stdout.splitlines():
            pid, parent_pid, state_text = line.split(None, 2)
            if not state_text.startswith("Z"):
                parents[int(pid)] = int(parent_pid)
    children: dict[int, list[int]] = {}
    for pid_number, parent_number in sorted(parents.items()):
        children.setdefault(parent_number, []).append(pid_number)
    return lambda parent: children.get(parent, [])


def _enter_namespaces(isolation: Config, host_name: str | None) -> None:
    """Give this process, and the children that it forks later, namespaces of their own."""
    if not isolation["mount"]:
        return
    flags = CLONE_NEWNS | CLONE_NEWUTS
    if isolation["pid"]:
        flags |= CLONE_NEWPID
    uid, gid = os.geteuid(), os.getegid()
    if isolation["user"]:
        flags |= CLONE_NEWUSER
    _check(_libc.unshare(flags), "unshare")
    if isolation["user"]:
        # The same ids inside as outside; a group map needs setgroups denied first (user_namespaces(7)).
        for file, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            _write(f"/proc/self/{file}", content)
    if host_name:
        name = host_name.encode()
        _check(_libc.sethostname(name, len(name)), "sethostname")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)


def _perform_mounts(operations: list[list[Any]], new_root: str | None) -> None:
    """Do what `mount_plan` worked out, in order, then make `new_root` the root where there is one."""
    if new_root:
        _mount("tmpfs", new_root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        # Else the bind of the folder that holds it would copy the half-made root into itself.
        _mount(None, new_root, None, MS_UNBINDABLE)
    for kind, path, *rest in operations:
        if kind == "directory":
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        elif kind == "file":
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        elif kind == "link":
            os.symlink(rest[0], path)  # noqa: PTH211
        elif kind == "bind":
            _mount(rest[0], path, None, MS_BIND | MS_REC)
        elif kind == "bind-if-possible":
            # Some of the host's entries cannot be bound (another user's FUSE mount): the pod does without.
            with contextlib.suppress(OSError):
                _mount(rest[0], path, None, MS_BIND | MS_REC)
        elif kind == "tmpfs":
            _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, rest[0])
        elif kind == "read-only":
            _make_read_only(path)
    if new_root:
        _mount(None, new_root, None, MS_PRIVATE)
        os.chdir(new_root)
        number = PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise SetUpError(f"pivot_root is not known for {os.uname().machine}")
        _check(_libc.syscall(number, b".", b"."), "pivot_root")
        _check(_libc.umount2(b".", MNT_DETACH), "umount2")
        os.chdir("/")


def _make_read_only(path: str) -> None:
    flags = MS_BIND | MS_REMOUNT | MS_RDONLY
    held = os.statvfs(path).f_flag
    for bit, flag in LOCKED_FLAGS.items():
        if held & bit:
            flags |= flag
    _mount(None, path, None, flags)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        source.encode(errors="surrogateescape") if source else None,
        target.encode(errors="surrogateescape"),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _check(result, f"mount {source or ''} on {target}")


def _exec(argv: list[str], environment: dict[str, str], working_directory: str) -> NoReturn:
    """Replace this process by the program; raise SetUpError in the words that containerd's runc uses."""
    # Also out of the way of a signal that the program sends to its own group.
    os.setsid()
    for number in signal.valid_signals():
        # Python ignores SIGPIPE and SIGXFSZ, the executor may ignore more; both would outlive exec.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.chdir(working_directory)
    except OSError as error:
        raise SetUpError(
            f"chdir to cwd ({json.dumps(working_directory)}) set in workingDir failed: {error.strerror}; "
            "create the directory or change workingDir"
        ) from None
    program = argv[0]
    if "/" in program:
        candidates = [program]
    else:
        candidates = [
            os.path.join(folder or ".", program)  # noqa: PTH118 (no pathlib: start-up time)
            for folder in environment.get("PATH", os.defpath).split(os.pathsep)
        ]
    refused: OSError | None = None
    for candidate in candidates:
        try:
            os.execve(candidate, argv, environment)  # noqa: S606
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error
            elif os.path.exists(candidate):  # noqa: PTH110
                refused = refused or OSError(error.errno, "the interpreter in its #! line does not exist")
    raise SetUpError(_explain_refusal(program, refused))


def _explain_refusal(program: str, refused: OSError | None) -> str:
    quoted = json.dumps(program)
    if refused is None:
        if "/" in program:
            return f"exec: {quoted}: stat {program}: no such file or directory"
        return f"exec: {quoted}: executable file not found in $PATH"
    if refused.errno == errno.ENOEXEC:
        return f"exec: {quoted}: exec format error; a script needs a #! line as its first line"
    if refused.errno == errno.EACCES:
        return f"exec: {quoted}: permission denied; it must be a file that may be executed (chmod +x)"
    return f"exec: {quoted}: {refused.strerror}"


def _die_with_parent(parent_pid: int | None) -> None:
    """Be killed when the parent's thread ends; exit at once when it has ended already."""
    if sys.platform == "linux":
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        if parent_pid is not None and os.getppid() != parent_pid:
            os._exit(128 + signal.SIGKILL)


def _write_start_error(fd: int, message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, message.encode(errors="replace"))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _kill(pid: int, number: int) -> None:
    # A setuid descendant may not be ours to signal.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
