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
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainwright.runner.executors.mpi_pod import describe_loss, find_silent_fault
from trainwright.runner.executors.readiness import ReadinessProbe

# Imported, not run by path, so that it is compiled once and for all; see `channel`.
_PROGRAM: Final = (
    *("-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv[1]); import remote_start; remote_start.main()",
    str(Path(__file__).parent),
)
_FOLDER: Final = ".trainwright"
_LOOK_AGAIN_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 5.0


class RemoteHosts:
    """The remote start of one job, as its pod `host` takes part in it."""

    def __init__(self, shared_folder: Path, host: str) -> None:
        self.folder = shared_folder
        self._host = host

    def prepare(self) -> None:
        """Make the folder that the pods share. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def build_server_command(self) -> tuple[str, ...]:
        """Remove the socket of an earlier server of this pod, and return the command of a new one."""
        self.withdraw()
        return (sys.executable, *_PROGRAM, "serve", str(self.folder), self._host)

    def write_client(self, temporary: Path, hosts: str) -> Path:
        """Write the program that this pod's mpirun calls, and the names that it knows; return its path.

        What was noted when an earlier launcher ran is removed: nobody has asked for anything yet.
        """
        for suffix in (".asked", ".lost"):
            for host in self.list_others(suffix):
                (self.folder / f"{host}{suffix}").unlink(missing_ok=True)
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
        name = self._socket

        async def ask(_: object) -> bool:
            return name.exists()

        return ReadinessProbe(ask=ask, first_period_seconds=_LOOK_AGAIN_SECONDS)

    def find_fault(self, environment: Mapping[str, str], exit_code: int) -> str | None:
        """Return what is wrong with the launcher of this pod, which ended so, in terms of the other pods.

        Asks their servers, and waits for the answers.
        """
        if lost := self._list_lost():
            return describe_loss(lost)
        if exit_code != 0:
            return None
        return find_silent_fault(environment, self.list_others(".socket"), self.list_others(".asked"))

    def list_others(self, suffix: str) -> set[str]:
        """Return the other hosts that have a file with this suffix."""
        return {file.stem for file in self.folder.glob(f"*{suffix}") if file.stem != self._host}

    def _list_lost(self) -> set[str]:
        """Return the other hosts that were asked to start something and ended before it.

        A client that mpirun kills notes nothing; but of a pod that has ended no server answers any more.
        """
        unreachable = {host for host in self.list_others(".asked") if not _answers(self.folder, host)}
        return self.list_others(".lost") | unreachable

    def withdraw(self) -> None:
        """Remove the socket of this pod, which has ended. What was noted of it its launcher may yet read."""
        with contextlib.suppress(OSError):
            self._socket.unlink()

    @property
    def _socket(self) -> Path:
        return self.folder / f"{self._host}.socket"


def _answers(folder: Path, host: str) -> bool:
    """Say whether the server of a host is there.

    That it can be connected to does not tell: one that has been killed still can, for the moment that the
    kernel takes, and the launcher may have noticed by other processes of that pod.
    """
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            # The path of a socket has 108 characters, which the folder's may have used up.
            near = f"/proc/self/fd/{directory}" if sys.platform == "linux" else str(folder)
            connection.connect(f"{near}/{host}.socket")
            connection.sendall(b'{"ask": true}\n')
            return bool(connection.recv(1))
    except (ConnectionError, FileNotFoundError):
        return False
    except OSError:
        return True  # it may be there, but cannot be asked
    finally:
        os.close(directory)
