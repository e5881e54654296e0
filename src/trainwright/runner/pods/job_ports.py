"""The ports at which a job's processes meet: chosen once, and again when somebody took one in between."""

from __future__ import annotations

from pathlib import Path

from trainwright.runner.pods.ports import PortReservation, is_port_free, reserve_port


class JobPorts:
    """The free ports of one job. All pods that run at the same time get the same ones."""

    def __init__(self, state_root: Path) -> None:
        self._root = state_root
        self._reservations: dict[tuple[int, str], PortReservation] = {}

    def get(self, port: int, host: str = "") -> int:
        """Return what the job has instead of a port written in its pods, or the host of this name has.

        Raises NoFreePort.
        """
        key = port, host
        if key not in self._reservations:
            self._reservations[key] = reserve_port(self._root)
        return self._reservations[key].port

    def check(self) -> None:
        """Give up ports on which somebody listens. Only while no pod of the job runs: it might be a pod."""
        for key, reservation in list(self._reservations.items()):
            if not is_port_free(reservation.port):
                reservation.release()
                del self._reservations[key]

    def release(self) -> None:
        """Give the ports back."""
        for reservation in self._reservations.values():
            reservation.release()
        self._reservations.clear()
