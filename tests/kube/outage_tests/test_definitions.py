"""Definitions on the cluster that are older than the operator: it says so, and does not begin."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kube.control_plane import ControlPlane, find_free_ports
from kube.operating import People, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection
from trainwright.operator.installed_schema import SchemaOutdated

NAME = "trainjobs.trainer.kubeflow.org"
PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"


@contextmanager
def without_fields(plane: ControlPlane, *fields: str) -> Iterator[None]:
    """Take fields of the status out of the definition of TrainJobs, as an older version would lack them."""
    present = plane.call("GET", PATH)
    older: Json = copy.deepcopy(present)
    properties = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
        "properties"
    ]
    for field in fields:
        del properties[field]
    # Patches: Kubernetes writes the status of a definition whenever it likes, which a PUT would meet.
    merge = "application/merge-patch+json"
    plane.call("PATCH", PATH, {"spec": {"versions": older["spec"]["versions"]}}, merge)
    try:
        yield
    finally:
        plane.call("PATCH", PATH, {"spec": {"versions": present["spec"]["versions"]}}, merge)


async def test_an_operator_above_older_definitions_does_not_begin(
    control_plane: ControlPlane, people: People, operator_connection: Connection
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    refusal = ""
    with without_fields(control_plane, "phase", "cause"):
        try:
            async with operating(operator_connection, people.namespace) as running:
                assert running.task.done()
                assert running.transport.writes == []
        except* SchemaOutdated as outdated:
            refusal = str(outdated.exceptions[0])
    assert (
        f"{NAME} on this cluster is older than this operator: it lacks status.phase, status.cause" in refusal
    )
    # With its own definitions it begins.
    async with operating(operator_connection, people.namespace):
        await people.until_pods(1)


async def test_the_process_says_it_in_one_line_and_exits_with_1(
    control_plane: ControlPlane, crds: None, operator_rights: None, tmp_path: Path
) -> None:
    config = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": find_free_ports(1)[0]},
        "certManagement": {"enable": False},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with without_fields(control_plane, "runtimeSnapshot"):
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trainwright", "controller", "--namespace", "default"),
            *("--config", str(tmp_path / "config.yaml")),
            *("--kubeconfig", str(control_plane.kubeconfig("operator"))),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        try:
            async with asyncio.timeout(60):
                _, errors = await running.communicate()
        finally:
            if running.returncode is None:
                running.send_signal(signal.SIGKILL)
                await running.wait()
    assert running.returncode == 1, errors
    (told,) = [json.loads(line) for line in errors.splitlines() if b"refusing to start" in line]
    assert told["level"] == "error"
    assert "it lacks status.runtimeSnapshot; apply the definitions" in told["error"]
    assert b"Traceback" not in errors


async def test_without_any_definitions_it_waits_for_them(
    control_plane: ControlPlane, people: People, operator_connection: Connection
) -> None:
    name = "clustertrainingruntimes.trainer.kubeflow.org"
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    crd = control_plane.call("GET", path)
    control_plane.call("DELETE", path)

    async def is_gone() -> bool:
        listed = control_plane.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        return name not in {item["metadata"]["name"] for item in listed["items"]}

    await eventually(is_gone)
    await people.create(runtime())
    await people.create(train_job())
    async with operating(operator_connection, people.namespace, waits=False) as running:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running.task), 1)
        assert running.transport.writes == []
        control_plane.install_crds([{**crd, "metadata": {"name": name}, "status": None}])
        await people.until_pods(1)
