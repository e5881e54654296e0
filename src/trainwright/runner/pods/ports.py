"""One free port per job.

Rendezvous servers listen on every address of the machine, so two jobs cannot share port 29500, whatever
address they name. A port is free when a socket can be bound to it on all addresses, IPv6 and IPv4. That
another job of this user does not choose the same one before either listens is seen to by a lock file per
port, held as long as the job may use it. Somebody else may still take it in between: then the job gets
another one when its pods start again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from pathlib import Path
from typing import Final

from trainwright.errors import UserError

# Below the range from which systems take ports for outgoing connections (32768 on Linux, 49152 elsewhere): a
# port out of that range can be gone between the choice and its use.
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_000
_ATTEMPTS: Final = 200


class NoFreePort(UserError):
    """Hundreds of ports were tried, and none was free."""


class PortReservation:
    """A port that no other job in the same state directory will choose. `release` gives it back."""

    def __init__(self, port: int, lock_file: Path, fd: int) -> None:
        self.port = port
        self._lock_file = lock_file
        self._fd: int | None = fd

    def release(self) -> None:
        """Give the port back."""
        if self._fd is not None:
            # Removed while it is still locked, so that nobody locks a file that is about to go.
            self._lock_file.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


def reserve_port(state_root: Path) -> PortReservation:
    """Return a port that is free on all addresses and reserved by nobody else. Raises NoFreePort."""
    folder = state_root / "ports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for _ in range(_ATTEMPTS):
        port = random.randint(FIRST_PORT, LAST_PORT)  # noqa: S311 (spreads jobs, keeps no secret)
        reservation = _try_reserve(folder / str(port), port)
        if reservation is None:
            continue
        if is_port_free(port):
            return reservation
        reservation.release()
    raise NoFreePort(
        f"no free port among {_ATTEMPTS} tried between {FIRST_PORT} and {LAST_PORT}; "
        "end programs that listen there (`ss -ltn` lists them)"
    )


def is_port_free(port: int) -> bool:
    """Say whether a server could listen on this port on every address."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 (a probe)
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a machine without IPv6
        with probe:
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    return False
    return True


def _try_reserve(lock_file: Path, port: int) -> PortReservation | None:
    fd = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == lock_file.stat().st_ino:
            return PortReservation(port, lock_file, fd)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None
