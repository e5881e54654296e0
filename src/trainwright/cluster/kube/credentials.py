"""The headers and certificates that identify us, fresh when they are due.

A token file is read again every minute and after a 401; an exec plugin runs again when its credential expires
or after a 401. Secrets stay in memory and in headers: they are in no log, no error and no process list.

Source: client.authentication.k8s.io/v1; bound service account tokens (rotated by the kubelet).
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from trainwright.cluster.kube.config import Connection, ExecPlugin
from trainwright.errors import TargetUnreachable

TOKEN_FILE_SECONDS = 60.0
PLUGIN_TIMEOUT_SECONDS = 60.0
# Renew this long before a plugin's credential expires, so that no request is sent with a dying one.
EXPIRY_MARGIN_SECONDS = 30.0


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is sent with. A certificate can only be set for new connections."""

    authorization: str | None = None
    client_certificate_pem: bytes | None = None
    client_key_pem: bytes | None = None

    def __repr__(self) -> str:
        """Show nothing of the secret."""
        return "Credential(...)"


class _PluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _PluginAnswer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _PluginStatus | None = None


class CredentialSource:
    """Gives the credential of a connection; at most one refresh runs at a time."""

    def __init__(
        self, connection: Connection, monotonic: Callable[[], float], wall_clock: Callable[[], datetime]
    ) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._credential: Credential | None = None
        self._due_at = 0.0
        self._refresh = asyncio.Lock()

    async def get_credential(self) -> Credential:
        """Return the present credential, renewed if it is due. Raises TargetUnreachable if there is none."""
        if self._credential is None or self._monotonic() >= self._due_at:
            async with self._refresh:
                if self._credential is None or self._monotonic() >= self._due_at:
                    self._credential, valid_seconds = await self._obtain()
                    self._due_at = self._monotonic() + valid_seconds
        return self._credential

    def expire(self, credential: Credential) -> None:
        """Say that the server refused this credential: the next request obtains another."""
        if credential is self._credential:
            self._due_at = 0.0

    async def _obtain(self) -> tuple[Credential, float]:
        connection = self._connection
        certificate = (connection.client_certificate_pem, connection.client_key_pem)
        if connection.token_file is not None:
            try:
                token = connection.token_file.read_text().strip()
            except OSError as error:
                raise TargetUnreachable(
                    f"cannot read the token file {connection.token_file}: {error.strerror}"
                ) from error
            return _build_credential(token, *certificate), TOKEN_FILE_SECONDS
        if connection.exec_plugin is not None:
            return await self._run_plugin(connection.exec_plugin)
        if connection.basic is not None:
            pair = base64.b64encode(":".join(connection.basic).encode()).decode()
            return Credential(authorization=f"Basic {pair}"), float("inf")
        return _build_credential(connection.token, *certificate), float("inf")

    async def _run_plugin(self, plugin: ExecPlugin) -> tuple[Credential, float]:
        answer = await _call_plugin(plugin, self._connection)
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise TargetUnreachable(f"the exec plugin {plugin.command!r} gave no credential")
        credential = _build_credential(
            status.token,
            status.client_certificate_data.encode() if status.client_certificate_data else None,
            status.client_key_data.encode() if status.client_key_data else None,
        )
        if status.expiration_timestamp is None:
            return credential, float("inf")
        left = (status.expiration_timestamp - self._wall_clock()).total_seconds()
        return credential, max(left - EXPIRY_MARGIN_SECONDS, 0.0)


def _build_credential(token: str | None, certificate: bytes | None, key: bytes | None) -> Credential:
    return Credential(
        authorization=f"Bearer {token}" if token else None,
        client_certificate_pem=certificate,
        client_key_pem=key,
    )


async def _call_plugin(plugin: ExecPlugin, connection: Connection) -> _PluginAnswer:
    info: dict[str, Any] = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": connection.server}
        if connection.ca_pem:
            cluster["certificate-authority-data"] = base64.b64encode(connection.ca_pem).decode()
        info["spec"]["cluster"] = cluster
    environment = {
        **os.environ,
        **dict(plugin.env),
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise TargetUnreachable(
            f"cannot start the exec plugin {plugin.command!r} that the kubeconfig names: {error.strerror}"
        ) from error
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            stdout, stderr = await process.communicate()
    except TimeoutError as error:
        raise TargetUnreachable(
            f"the exec plugin {plugin.command!r} did not answer in {PLUGIN_TIMEOUT_SECONDS:.0f} s"
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = stderr.decode(errors="replace").strip().splitlines()
        raise TargetUnreachable(
            f"the exec plugin {plugin.command!r} failed ({process.returncode})"
            + (f": {said[-1]}" if said else "")
        )
    try:
        return msgspec.json.decode(stdout, type=_PluginAnswer)
    except msgspec.MsgspecError as error:
        raise TargetUnreachable(
            f"the exec plugin {plugin.command!r} printed no ExecCredential: {error}"
        ) from error
