"""The sockets of a pool of connections: none outlives it, whatever became of the requests.

asyncio ends a TLS connection by saying so and waiting, for up to 30 s, until the other side says so too. A
request that is cancelled leaves its connection in that wait, and the HTTP library forgets it at once: closing
the pool does not close it, and it is still open when the event loop is gone. Here nobody waits, and every
socket is known from the moment it is made until it is closed.
Source: RFC 8446, section 6.1: neither side has to wait for the other's close_notify.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

# Closing takes a few turns of the event loop and no word of the server; this is for a loop that is stuck.
CLOSE_SECONDS: Final = 5.0


class OneSidedClose(ssl.SSLObject):
    """One end of a TLS connection that says good-bye and does not wait for an answer.

    For the `sslobject_class` of a context, of a client or of a server.
    """

    def unwrap(self) -> None:
        """Say that nothing more is sent."""
        with contextlib.suppress(ssl.SSLWantReadError):  # the other side's good-bye, which may never come
            super().unwrap()


class _Socket(socket.socket):
    """A socket that tells when it is closed."""

    def __init__(self, family: int, type_: int, protocol: int, tell: Callable[[_Socket], None]) -> None:
        super().__init__(family, type_, protocol)
        self._tell = tell

    def close(self) -> None:
        """Close the socket."""
        super().close()
        self._tell(self)


class Sockets:
    """The open sockets of one pool; made by `open`, which fits `aiohttp.TCPConnector(socket_factory=...)`."""

    def __init__(self) -> None:
        self._open: set[_Socket] = set()
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    def open(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for an address as `getaddrinfo` gives it."""
        family, type_, protocol, *_ = address
        made = _Socket(family, type_, protocol, self._forget)
        self._open.add(made)
        self._all_closed.clear()
        return made

    async def close(self) -> None:
        """Close every socket, and return when they are.

        A socket belongs to its connection: it is not closed here but broken off, which ends the connection,
        also one whose other side reads nothing any more, and that closes it.
        """
        for one in self._open:
            with contextlib.suppress(OSError):  # one that is not connected (any more)
                one.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._all_closed.wait()

    def _forget(self, closed: _Socket) -> None:
        self._open.discard(closed)
        if not self._open:
            self._all_closed.set()
