"""Client-side limits of the rate of requests, for those who want them: a token bucket per resource.

Without a limit the server's priority and fairness decides, which knows how busy it is; a client does not.
A limit that a configuration names is kept, per resource kind, as the peer's client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from trainwright.cluster.kube.requests import Request, find_plural
from trainwright.cluster.kube.transport import Transport


class TokenBucket:
    """`burst` tokens at most, `qps` more every second; one may be taken before it is there."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float]) -> None:
        self._qps = qps
        self._burst = max(burst, 1)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    def take(self) -> float:
        """Take a token and return in how many seconds it may be used."""
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._at) * self._qps, float(self._burst)) - 1.0
        self._at = now
        return max(-self._tokens / self._qps, 0.0)

    def try_take(self) -> bool:
        """Take a token if there is one now."""
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._at) * self._qps, float(self._burst))
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class LimitedTransport:
    """Sends requests no faster than allowed, in the order in which they came; streams are not limited."""

    def __init__(self, transport: Transport, qps: float, burst: int) -> None:
        self._transport = transport
        self._qps = qps
        self._burst = burst
        self._buckets: dict[str, TokenBucket] = {}

    async def request(self, request: Request) -> bytes:
        """Return the body of the answer, once the request may be sent."""
        plural = find_plural(request.path)
        bucket = self._buckets.get(plural)
        if bucket is None:
            clock = asyncio.get_running_loop().time
            bucket = self._buckets[plural] = TokenBucket(self._qps, self._burst, clock)
        pause = bucket.take()
        if pause > 0:
            await asyncio.sleep(pause)
        return await self._transport.request(request)

    def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body in the pieces that arrive."""
        return self._transport.stream(request, inactivity_seconds)
