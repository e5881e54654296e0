"""Readiness probes: asks a container whether it is ready, as a kubelet does.

`exec` runs beside the main process, in its namespaces; `tcpSocket` and `httpGet` connect from here. A
`grpc` probe is not asked: such a container counts as ready when it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from trainwright.api.meta import Json
from trainwright.runner.executors.channel import ContainerChannel

_LONGEST_STATUS_LINE: Final = 4096


class ReadinessProbe(msgspec.Struct, frozen=True, kw_only=True):
    """When and how often to ask, with the defaults of core/v1; `ask` says whether the container is ready.

    Until it is, it is asked every `first_period_seconds`, where that is shorter: a job may be waiting for
    nothing else. A kubelet does so too.
    """

    ask: Callable[[ContainerChannel], Awaitable[bool]]
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    first_period_seconds: float = 1.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


def parse_probe(
    probe: Json | None, address: str, named_ports: Mapping[str, int], ports: Mapping[int, int]
) -> ReadinessProbe | None:
    """Return the probe; None for a container that is ready as soon as it runs.

    `address` is the pod's; `named_ports` its container's, `ports` those that this machine has others for.
    """
    if not probe:
        return None
    timeout = float(probe.get("timeoutSeconds") or 1)

    def resolve(port: Any) -> int:
        number = named_ports.get(port, 0) if isinstance(port, str) and not port.isdigit() else int(port)
        return ports.get(number, number)

    if (command := probe.get("exec")) is not None:
        argv = tuple(command.get("command") or ())

        async def ask(channel: ContainerChannel) -> bool:
            return await channel.execute(argv, timeout) == 0
    elif (tcp := probe.get("tcpSocket")) is not None:
        host, port = tcp.get("host") or address, resolve(tcp.get("port", 0))

        async def ask(channel: ContainerChannel) -> bool:  # noqa: ARG001 (one signature for all)
            return await _connects(host, port, timeout)
    elif (http := probe.get("httpGet")) is not None:
        http_host, http_port = http.get("host") or address, resolve(http.get("port", 0))

        async def ask(channel: ContainerChannel) -> bool:  # noqa: ARG001
            return await _answers(http, http_host, http_port, timeout)
    else:
        return None
    return ReadinessProbe(
        ask=ask,
        initial_delay_seconds=float(probe.get("initialDelaySeconds") or 0),
        period_seconds=float(probe.get("periodSeconds") or 10),
        timeout_seconds=timeout,
        success_threshold=int(probe.get("successThreshold") or 1),
        failure_threshold=int(probe.get("failureThreshold") or 3),
    )


async def watch_readiness(
    probe: ReadinessProbe, channel: ContainerChannel, report: Callable[[bool], None]
) -> None:
    """Ask again and again, until cancelled, and report each change; a container begins as not ready."""
    await asyncio.sleep(probe.initial_delay_seconds)
    is_ready = False
    in_a_row = 0
    while True:
        answer = await probe.ask(channel)
        in_a_row = in_a_row + 1 if answer != is_ready else 0
        if in_a_row >= (probe.failure_threshold if is_ready else probe.success_threshold):
            is_ready, in_a_row = answer, 0
            report(is_ready)
        first = min(probe.first_period_seconds, probe.period_seconds)
        await asyncio.sleep(probe.period_seconds if is_ready else first)


async def _connects(host: str, port: int, timeout_seconds: float) -> bool:
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _answers(http: Json, host: str, port: int, timeout_seconds: float) -> bool:
    """Return whether a GET is answered with 200 to 399; certificates are not checked, as a kubelet's."""
    context = None
    if str(http.get("scheme") or "HTTP").upper() == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    headers = {"Host": f"{host}:{port}", "User-Agent": "trainwright", "Connection": "close"}
    headers |= {header["name"]: header["value"] for header in http.get("httpHeaders") or ()}
    path = str(http.get("path") or "/")
    request = f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1\r\n"
    request += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, limit=_LONGEST_STATUS_LINE
            )
            try:
                writer.write(request.encode())
                status_line = await reader.readline()
            finally:
                writer.close()
        return 200 <= int(status_line.split()[1]) < 400
    except (OSError, TimeoutError, ValueError, IndexError):
        return False
