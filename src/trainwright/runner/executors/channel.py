"""One attempt of one container, seen from the executor: starts `pod_init` and speaks with it.

Owns the child process, the socket to it and the reading end of its output. No policy: restarts, statuses and
grace periods are the pod's business (`process`).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from trainwright.runner.executors.isolation import Isolation
from trainwright.runner.executors.mount_plan import MountLayout

# Imported, not run by path: only what is imported is compiled once and for all. The folder comes last on the
# path, so that no module of ours can hide one of the standard library.
_PROGRAM: Final = (
    "-c",
    "import sys; sys.path.append(sys.argv[1]); import pod_init; pod_init.main()",
    str(Path(__file__).parent),
)
_LONGEST_MESSAGE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
# An interpreter that lives in an odd place may need these to start at all.
_LOADER_VARIABLES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH")
_NOT_STARTED: Final = 128


class ContainerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that a container needs to start. `host_name` and `layout` are for one with its own mounts."""

    isolation: Isolation
    argv: Sequence[str]
    environment: Mapping[str, str]
    working_directory: str
    host_name: str | None = None
    layout: MountLayout = MountLayout()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended; `start_error` is None for one that started."""

    exit_code: int
    start_error: str | None = None


class ContainerChannel:
    """A container that was started. After `wait` returned nothing of it is left."""

    def __init__(self, process: subprocess.Popen[bytes], wire: _Wire) -> None:
        self._process = process
        self._wire = wire
        self._started = asyncio.get_running_loop().create_future()
        self._execs: dict[int, asyncio.Future[int]] = {}
        self._last_exec = 0
        self._ended = False
        self._outcome = asyncio.create_task(self._listen(), name=f"container {process.pid}")

    @classmethod
    def open(cls, setup: ContainerSetup, output: int = subprocess.DEVNULL) -> ContainerChannel:
        """Start a container; what it prints goes to the descriptor `output`, which stays the caller's.

        Call it from the main thread, where the event loop runs: the kernel ends the container with the thread
        that started it.
        """
        isolation = setup.isolation
        configuration = {
            "parentPid": os.getpid(),
            "isolation": {"mount": isolation.mount, "user": isolation.user, "pid": isolation.pid},
            "hostName": setup.host_name,
            "mounts": setup.layout.operations,
            "newRoot": setup.layout.new_root,
            "argv": list(setup.argv),
            "environment": dict(setup.environment),
            "workingDirectory": setup.working_directory,
        }
        ours, theirs = socket.socketpair()
        try:
            # -I -S: neither the user's PYTHONPATH nor site-packages have a say in what runs here.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", *_PROGRAM],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                env={name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        wire = _Wire(ours)
        wire.write(configuration)
        return cls(process, wire)

    @property
    def pid(self) -> int:
        """The process that we started; the container's own are its descendants."""
        return self._process.pid

    async def started(self) -> bool:
        """Wait until the program runs; False when it could not be started."""
        return bool(await asyncio.shield(self._started))

    async def wait(self) -> Outcome:
        """Wait until nothing of the container is left."""
        return await asyncio.shield(self._outcome)

    def signal(self, number: int) -> None:
        """Pass a signal to the main process."""
        self._wire.write({"signal": int(number)})

    async def execute(self, argv: Sequence[str], timeout_seconds: float) -> int:
        """Run a program beside the main process, in its namespaces and environment; return its exit code.

        137 after the timeout, 128 where it cannot be started.
        """
        if self._ended:
            return _NOT_STARTED
        self._last_exec += 1
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._execs[self._last_exec] = answer
        self._wire.write({"exec": self._last_exec, "argv": list(argv), "timeoutSeconds": timeout_seconds})
        return await answer

    async def kill(self) -> Outcome:
        """End all processes of the container now, and wait until they are gone."""
        self.hang_up()
        return await self.wait()

    def hang_up(self) -> None:
        """End all processes of the container now; `wait` tells when they are gone."""
        if not self._ended:
            self._wire.hang_up()

    async def _listen(self) -> Outcome:
        exit_code: int | None = None
        start_error: str | None = None
        try:
            async for line in self._wire.lines:
                message = json.loads(line)
                if "error" in message:
                    start_error = message["error"]["message"]
                    self._settle_start(started=False)
                elif "started" in message:
                    self._settle_start(started=True)
                elif "exec" in message:
                    if not (answer := self._execs.pop(message["exec"])).done():
                        answer.set_result(message["exitCode"])
                else:
                    exit_code = message["exit"]
        finally:
            self._ended = True
            self._settle_start(started=False)
            for answer in self._execs.values():
                if not answer.done():
                    answer.set_result(_NOT_STARTED)
            self._wire.close()
            # End of file comes with its exit, or a moment before.
            status = await asyncio.to_thread(self._process.wait)
        if exit_code is None:  # it was killed itself, or could not set the container up
            exit_code = status if status >= 0 else 128 - status
        return Outcome(exit_code=exit_code, start_error=start_error)

    def _settle_start(self, *, started: bool) -> None:
        if not self._started.done():
            self._started.set_result(started)


class _Wire:
    """Our end of the socket: lines of JSON, both ways.

    What the other end said last is read even where writing to it fails: a container may end at the moment at
    which it is asked for something. (A StreamReader loses what it has not read with the first failed write.)
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._fd = connection.fileno()
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._has_hung_up = False
        self.lines = asyncio.StreamReader(_LONGEST_MESSAGE_BYTES)
        self._loop.add_reader(self._fd, self._read)

    def write(self, message: dict[str, Any]) -> None:
        """Send a message, now or when there is room; to one that is gone, or after hanging up, not at all."""
        if not self._has_hung_up:
            # Only ASCII leaves here, so what is no UTF-8 in the environment survives as surrogates.
            self._unsent += json.dumps(message).encode() + b"\n"
            self._send()

    def hang_up(self) -> None:
        """Let the other end see the end of file, after all that was written."""
        if not self._has_hung_up:
            self._has_hung_up = True
            self._send()

    def close(self) -> None:
        """Close the socket."""
        self._has_hung_up = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
            if self._has_hung_up:
                self._socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._send)
            return
        except OSError:
            self._unsent.clear()
        self._loop.remove_writer(self._fd)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:  # it ended before it had read all
            data = b""
        if data:
            self.lines.feed_data(data)
        else:
            self._loop.remove_reader(self._fd)
            self.lines.feed_eof()
