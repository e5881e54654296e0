"""Requests over the wire: typed refusals, fresh credentials, certificates that are checked."""

from __future__ import annotations

import msgspec
import pytest

from kube.control_plane import ADMIN_TOKEN, ControlPlane, find_free_ports
from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.config import Connection, ExecPlugin, load_connection
from trainwright.cluster.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from trainwright.cluster.kube.requests import build_create, build_delete, build_get, build_merge_patch
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import TargetUnreachable

NODE_NAMESPACE = ObjectKey("Namespace", "", "default")


def config_map(namespace, name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}


@pytest.fixture
def connection(control_plane: ControlPlane, tmp_path) -> Connection:
    return load_connection({"KUBECONFIG": str(control_plane.kubeconfig())}, tmp_path)


async def test_refusals_come_as_the_error_they_are(transport, namespace):
    key = ObjectKey("ConfigMap", namespace, "a")
    with pytest.raises(NotFoundError):
        await transport.request(build_get(key))
    created = msgspec.json.decode(await transport.request(build_create(config_map(namespace, "a"))))
    with pytest.raises(AlreadyExistsError):
        await transport.request(build_create(config_map(namespace, "a")))
    with pytest.raises(ConflictError):
        await transport.request(
            build_merge_patch(key, {"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}})
        )
    with pytest.raises(ConflictError):
        await transport.request(build_delete(key, uid="not-this-one"))
    with pytest.raises(InvalidError) as invalid:
        await transport.request(build_create(config_map(namespace, "Not_A_Name")))
    assert [error.path for error in invalid.value.errors] == ["metadata.name"]
    await transport.request(build_delete(key, uid=created["metadata"]["uid"]))


async def test_an_unknown_field_is_refused_not_dropped(transport, namespace):
    obj = {**config_map(namespace, "a"), "dataa": {"x": "y"}}
    with pytest.raises(InvalidError, match="dataa"):
        await transport.request(build_create(obj))


async def test_a_token_file_is_read_again_when_its_token_is_refused(connection, tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("expired")
    fresh = msgspec.structs.replace(connection, token=None, token_file=token_file)
    async with AiohttpTransport(fresh) as transport:
        with pytest.raises(UnauthorizedError):
            await transport.request(build_get(NODE_NAMESPACE))
        token_file.write_text(ADMIN_TOKEN + "\n")
        await transport.request(build_get(NODE_NAMESPACE))
        token_file.write_text("rotated away")
        await transport.request(build_get(NODE_NAMESPACE))


async def test_an_exec_plugin_gives_the_token(connection, tmp_path):
    plugin = tmp_path / "login"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        '\\"status\\":{\\"token\\":\\"$SECRET\\"}}"\n'
    )
    plugin.chmod(0o755)
    fresh = msgspec.structs.replace(
        connection,
        token=None,
        exec_plugin=ExecPlugin(
            command=str(plugin), api_version="client.authentication.k8s.io/v1", env=(("SECRET", ADMIN_TOKEN),)
        ),
    )
    async with AiohttpTransport(fresh) as transport:
        await transport.request(build_get(NODE_NAMESPACE))


async def test_an_exec_plugin_that_fails_is_named_with_its_last_words(connection, tmp_path):
    plugin = tmp_path / "login"
    plugin.write_text("#!/bin/sh\necho 'session expired, log in again' >&2\nexit 3\n")
    plugin.chmod(0o755)
    broken = msgspec.structs.replace(
        connection,
        token=None,
        exec_plugin=ExecPlugin(command=str(plugin), api_version="client.authentication.k8s.io/v1"),
    )
    async with AiohttpTransport(broken) as transport:
        with pytest.raises(TargetUnreachable, match="session expired, log in again"):
            await transport.request(build_get(NODE_NAMESPACE))


async def test_a_server_whose_certificate_another_ca_signed_is_not_talked_to(
    control_plane: ControlPlane, connection
):
    wrong = msgspec.structs.replace(
        connection, ca_pem=(control_plane.folder / "pki/hook/tls.crt").read_bytes()
    )
    async with AiohttpTransport(wrong) as transport:
        with pytest.raises(TargetUnreachable, match="certificate"):
            await transport.request(build_get(NODE_NAMESPACE))


async def test_nobody_listening_is_said_with_the_address(connection):
    [port] = find_free_ports(1)
    away = msgspec.structs.replace(connection, server=f"https://127.0.0.1:{port}")
    async with AiohttpTransport(away) as transport:
        with pytest.raises(TargetUnreachable, match=str(port)):
            await transport.request(build_get(NODE_NAMESPACE))
