"""The files by which pods of one job start programs in each other: sockets, marks, and mpirun's `ssh`.

    <shared folder>/<host>.socket           there as long as the server in that pod answers
    <shared folder>/<host>.asked            it was asked to start something
    <shared folder>/<host>.lost             it ended before what it had been asked to start
    <TMPDIR of the pod>/.trainwright/ssh    what mpirun calls; and `hosts`, the names that it can be given

The client is a shell script, because some implementations take a path and no arguments, and its path has
neither spaces nor colons, at which Open MPI would take it apart. What it runs is `remote_start`.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Final

from trainwright.runner.executors.readiness import ReadinessProbe

# Imported, not run by path, so that it is compiled once and for all; see `channel`.
_PROGRAM: Final = (
    *("-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv[1]); import remote_start; remote_start.main()",
    str(Path(__file__).parent),
)
_FOLDER: Final = ".trainwright"
_LOOK_AGAIN_SECONDS: Final = 0.02


class RemoteHosts:
    """The remote start of one job, as its pod `host` takes part in it."""

    def __init__(self, shared_folder: Path, host: str) -> None:
        self.folder = shared_folder
        self._host = host

    def prepare(self) -> None:
        """Make the folder that the pods share. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def build_server_command(self) -> tuple[str, ...]:
        """Remove what an earlier server of this pod left, and return the command of a new one."""
        self._remove(".socket", ".asked", ".lost")
        return (sys.executable, *_PROGRAM, "serve", str(self.folder), self._host)

    def write_client(self, temporary: Path, hosts: str) -> Path:
        """Write the program that this pod's mpirun calls, and the names that it knows; return its path."""
        folder = temporary / _FOLDER
        folder.mkdir(exist_ok=True)
        names = folder / "hosts"
        names.write_text(hosts)
        words = (sys.executable, *_PROGRAM, "start", str(self.folder), self._host, str(names))
        program = folder / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o700)
        return program

    def build_probe(self) -> ReadinessProbe:
        """Return the probe of a server: it is ready when it answers, whatever the probe of its sshd was."""
        socket = self._socket

        async def ask(_: object) -> bool:
            return socket.exists()

        return ReadinessProbe(ask=ask, first_period_seconds=_LOOK_AGAIN_SECONDS)

    def list_others(self, suffix: str) -> set[str]:
        """Return the other hosts that have a file with this suffix."""
        return {file.stem for file in self.folder.glob(f"*{suffix}") if file.stem != self._host}

    def withdraw(self) -> None:
        """Remove the socket of this pod, which has ended. What was noted of it, its launcher may yet read."""
        self._remove(".socket")

    def _remove(self, *suffixes: str) -> None:
        for suffix in suffixes:
            with contextlib.suppress(OSError):
                self._socket.with_suffix(suffix).unlink()

    @property
    def _socket(self) -> Path:
        return self.folder / f"{self._host}.socket"
