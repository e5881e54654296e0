"""The port at which a job's processes meet: chosen once, and again when somebody took it in between."""

from __future__ import annotations

from pathlib import Path

from trainwright.runner.pods.ports import PortReservation, is_port_free, reserve_port


class JobPort:
    """The free port of one job. All pods that run at the same time get the same one."""

    def __init__(self, state_root: Path) -> None:
        self._root = state_root
        self._reservation: PortReservation | None = None

    @property
    def number(self) -> int:
        """The port. Raises NoFreePort."""
        if self._reservation is None:
            self._reservation = reserve_port(self._root)
        return self._reservation.port

    def check(self) -> None:
        """Give up a port on which somebody listens. Only while no pod of the job runs: it might be a pod."""
        if self._reservation is not None and not is_port_free(self._reservation.port):
            self.release()

    def release(self) -> None:
        """Give the port back."""
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None
