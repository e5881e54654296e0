"""Starts a job's supervisor as a process of its own, out of the command that submitted or resumed the job.

The command forks instead of starting a new interpreter: what it has imported is there already, which saves
most of the time that a launch adds. It forks twice, so that the supervisor is nobody's child and in a
session of its own, and waits until the supervisor holds the job's lock, or says why it does not.

A forked process must not use what the command had open. Every descriptor of the command is therefore
replaced by /dev/null, under its number: objects that still believe to own it then close nothing that is
used by somebody else. The command has to be single-threaded at that moment, and to have closed the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.errors import NotFound, StateDirectoryError, UserError
from trainwright.runner.executor import Executor
from trainwright.runner.executors.process_identity import send_signal
from trainwright.runner.supervisor.handshake import BUSY, STARTED, Handshake
from trainwright.runner.supervisor.supervisor_lock import find_live_supervisor

_FIRST_FREE_FD: Final = 3
_SIGNALS_OF_TERMINALS: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP}
)


class SupervisorNotStarted(UserError):
    """The supervisor ended before it held the job's lock."""


def start_supervisor(
    paths: StatePaths,
    key: ObjectKey,
    environment: Mapping[str, str],
    working_directory: Path,
    build_executor: Callable[[], Executor] | None = None,
) -> bool:
    """Start a supervisor for a TrainJob that is in the store; False where one is at work already.

    `environment` and `working_directory` are what the job's containers inherit; `build_executor` says how
    pods are run, as processes of this machine where it is absent. Returns when the supervisor holds the job's
    lock. Raises NotFound, StateDirectoryError, or SupervisorNotStarted with the reason.
    """
    _check_store_is_closed(paths)
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    launch = _Launch(paths, key, dict(environment), working_directory, build_executor)
    # A ctrl-C is for the command alone. The child, until it is in a session of its own, gets it as well, and
    # with the handlers that it still has it would tell the command a second time, through the pipe that wakes
    # the command's event loop: `run` would kill the job instead of stopping it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS_OF_TERMINALS)
    try:
        child = os.fork()
        if child == 0:
            _detach(launch, writing)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        os.waitpid(child, 0)
        answer = pipe.read()
    if not answer:
        raise SupervisorNotStarted(
            f"the supervisor of {key} ended before it began; see {paths.root / 'supervisor-start.log'}"
        )
    handshake = msgspec.json.decode(answer, type=Handshake)
    errors: dict[str, type[UserError]] = {"StateDirectoryError": StateDirectoryError}
    if handshake.result == NotFound.__name__:
        raise NotFound(key.kind, key.name)
    if handshake.result not in {STARTED, BUSY}:
        raise errors.get(handshake.result, SupervisorNotStarted)(handshake.message)
    return handshake.result == STARTED


def ensure_supervisor(
    paths: StatePaths,
    key: ObjectKey,
    environment: Mapping[str, str],
    working_directory: Path,
    uid: str | None = None,
) -> bool:
    """See to it that what was just written about a TrainJob is acted on; True where one was started.

    With the TrainJob's uid, a supervisor that is at work is found without starting anything. One that is
    about to end is no exception: it looks at the store again after it has given its lock back.
    """
    if uid is not None and find_live_supervisor(paths.job(uid)) is not None:
        return False
    return start_supervisor(paths, key, environment, working_directory)


def hurry_supervisor(paths: StatePaths, uid: str) -> bool:
    """Make a supervisor that stops pods kill them at once; False where there is none."""
    return _signal(paths, uid, signal.SIGINT)


def end_supervisor(paths: StatePaths, uid: str) -> bool:
    """Make a supervisor stop its pods, fail its job and end; False where there is none."""
    return _signal(paths, uid, signal.SIGTERM)


def _check_store_is_closed(paths: StatePaths) -> None:
    """Raise where this process has the store open: that is a mistake of the program, and a dangerous one.

    SQLite remembers per process which locks it holds on a file. A forked child inherits the memory and not
    the locks: it would write as if it held them. Source: sqlite.org, "How to corrupt an SQLite database",
    2.6.
    """
    store = str(paths.store)
    for fd in _list_descriptors():
        with contextlib.suppress(OSError):
            # A link to the file where /proc is; elsewhere there is nothing to look at.
            if str(Path(f"/proc/self/fd/{fd}").readlink()).startswith(store):
                raise RuntimeError(f"close {store} before a supervisor is started: this process forks")


def _signal(paths: StatePaths, uid: str, number: int) -> bool:
    supervisor = find_live_supervisor(paths.job(uid))
    return supervisor is not None and send_signal(supervisor.process, number)


class _Launch(msgspec.Struct, frozen=True):
    """What the supervisor's process is to do."""

    paths: StatePaths
    key: ObjectKey
    environment: dict[str, str]
    working_directory: Path
    build_executor: Callable[[], Executor] | None


def _detach(launch: _Launch, handshake: int) -> NoReturn:
    """Become the supervisor; in the process between it and the command, end. Never returns to the caller."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        # What the command had is never to be collected here: its objects would close what is not theirs.
        gc.freeze()
        _reset_signals()
        _redirect(launch.paths, handshake)
        os.chdir("/")
        code = _run(launch, handshake)
    except BaseException:  # noqa: BLE001 (the process ends here, and must not run the command's own code)
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _run(launch: _Launch, handshake: int) -> int:
    from trainwright.runner.pods.pod_context import Surroundings
    from trainwright.runner.supervisor.supervisor_process import build_process_executor, supervise

    has_told = False

    def tell(answer: Handshake) -> None:
        nonlocal has_told
        if has_told:
            return
        has_told = True
        if answer.result == STARTED:
            _log_to(Path(answer.message))
        with contextlib.suppress(OSError):
            os.write(handshake, msgspec.json.encode(answer))
            _close_by_number(handshake)

    try:
        surroundings = Surroundings(launch.environment, launch.working_directory)
        build_executor = launch.build_executor or build_process_executor
        asyncio.run(supervise(launch.paths, launch.key, surroundings, tell, build_executor))
    except UserError as error:
        tell(Handshake(type(error).__name__, str(error)))
        raise
    except OSError as error:
        message = f"the state directory {launch.paths.root} cannot be used: {error}; see TRAINWRIGHT_STATE"
        tell(Handshake(StateDirectoryError.__name__, message))
        raise
    return 0


def _close_by_number(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, fd, inheritable=False)
    os.close(null)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGWINCH):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Who the supervisor is can be read before it acts on signals: what comes in between waits for that.
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGINT})


def _redirect(paths: StatePaths, handshake: int) -> None:
    """Point the standard streams away from the terminal and let go of everything else but the handshake."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = os.open(
        paths.root / "supervisor-start.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    for fd in _list_descriptors():
        if fd >= _FIRST_FREE_FD and fd not in {null, log, handshake}:
            with contextlib.suppress(OSError):
                os.dup2(null, fd, inheritable=False)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    # The command may have put something of its own in their place.
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 (for the life of the process)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _log_to(file: Path) -> None:
    """Send what is printed here, such as the traceback of a bug, to the job's own log from now on."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _list_descriptors() -> list[int]:
    folder = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
    return [int(entry.name) for entry in Path(folder).iterdir()]
