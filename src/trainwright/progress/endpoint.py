"""Sends one report: environment variables in, one HTTP request out, what became of it back.

Plain `http.client`: no proxy settings of the user get between a job and its own engine, and no redirect takes
the token elsewhere. Source of variables and protocol: spec 03, sections 1.2 and 1.11.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from pathlib import Path
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA = "KUBEFLOW_TRAINER_SERVER_CA_CERT"  # a file; where it does not exist the system's authorities are asked
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 (a variable that names a file)

_MAX_BODY_BYTES = 65_536
_TIMEOUT_SECONDS = 5.0
_MAX_RETRY_SECONDS = 60.0
_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


class Refused(Exception):
    """The server, or common sense, says no: the same report would be refused again."""


class Unavailable(Exception):
    """The report may arrive later; `retry_seconds` is what the server asked for, 0 where it did not."""

    def __init__(self, reason: str, retry_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class Endpoint:
    """Where reports go. Reads the token each time, as it rotates; keeps the TLS context while the CA is."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._authorities: tuple[object, ssl.SSLContext] | None = None

    def post(self, request: dict[str, Any]) -> None:
        """Send the report. Raises Refused or Unavailable."""
        try:
            self._post(encode_request(request))
        except (OSError, http.client.HTTPException) as error:  # refused, timeout, TLS, DNS, no token file
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        except ValueError as error:  # a URL or token that is none
            raise Refused(str(error)) from error

    def _post(self, body: bytes) -> None:
        url = urlsplit(self._environment[URL])
        token = Path(self._environment.get(TOKEN, "")).read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = self._connect(url.scheme, url.hostname or "", url.port)
        try:
            connection.request("POST", url.path + (f"?{url.query}" if url.query else ""), body, headers)
            response = connection.getresponse()
            if response.status == 200:
                return
            reason = f"HTTP {response.status} {response.read(2000).decode('utf-8', 'replace')}"
            if response.status in _RETRYABLE:
                raise Unavailable(reason, _parse_retry_after(response.getheader("Retry-After")))
            raise Refused(reason)
        finally:
            connection.close()

    def _connect(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            context = self._load_authorities()
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        if scheme == "http" and _is_loopback(host):
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        raise Refused(f"{URL} is neither https nor http on this machine: the token would travel in the clear")

    def _load_authorities(self) -> ssl.SSLContext:
        path = Path(self._environment.get(CA) or "/nonexistent")
        try:
            seen = path.stat()
            version: object = (str(path), seen.st_mtime_ns, seen.st_ino, seen.st_size)
        except OSError:
            version = None
        if self._authorities is None or self._authorities[0] != version:
            context = ssl.create_default_context(cafile=str(path) if version else None)
            self._authorities = (version, context)
        return self._authorities[1]


def encode_request(request: dict[str, Any]) -> bytes:
    """Return the JSON of a request; the last metrics are dropped until it is within the limit of a body."""
    body = json.dumps(request).encode()
    while len(body) > _MAX_BODY_BYTES:
        status = request["trainerStatus"]
        metrics = status["metrics"]
        request = {"trainerStatus": {**status, "metrics": metrics[: len(metrics) * 3 // 4]}}
        body = json.dumps(request).encode()
    return body


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_retry_after(header: str | None) -> float:
    return min(float(header), _MAX_RETRY_SECONDS) if header and header.isdecimal() else 0.0
