"""What the pods get (spec 02 sections 9.2 and 16.9)."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks.flux.builders import env, flux_layout, flux_runtime
from template.builders import container
from trainwright.api.meta import Json
from trainwright.frameworks.contract import ContainerAddition, Contribution, GeneratedSecret, PodAddition
from trainwright.frameworks.flux import Flux
from trainwright.frameworks.flux.settings import DEFAULT_VIEW_IMAGE

ENTRYPOINT = ("/bin/sh", "/etc/flux-config/entrypoint.sh")
SCRIPTS_MOUNT = {"name": "demo-flux-entrypoint", "mountPath": "/etc/flux-config", "readOnly": True}


def build(spec: Any = None, name: str = "demo", **trainer: Any) -> Contribution:
    return Flux().build_contribution(flux_layout(spec, name, **trainer))


def get_node(contribution: Contribution) -> ContainerAddition:
    return contribution.pods["node"].containers["node"]


def test_2_two_nodes() -> None:
    contribution = build(num_nodes=2)
    [config_map] = contribution.objects
    assert (config_map["kind"], config_map["metadata"]) == ("ConfigMap", {"name": "demo-flux-entrypoint"})
    assert list(config_map["data"]) == ["entrypoint.sh", "init.sh"]
    assert contribution.secrets == (GeneratedSecret(name="demo-flux-curve", generator="curve-certificate"),)
    assert contribution.pods == {
        "node": PodAddition(
            containers={
                "node": ContainerAddition(
                    command=(*ENTRYPOINT, "run"),
                    volume_mounts=(
                        {"name": "flux-install", "mountPath": "/mnt/flux"},
                        {"name": "spack-install", "mountPath": "/opt/software"},
                        SCRIPTS_MOUNT,
                        {"name": "flux-curve", "mountPath": "/curve", "readOnly": True},
                        {"name": "shared-memory", "mountPath": "/dev/shm"},
                    ),
                )
            },
            volumes=(
                {"name": "spack-install", "emptyDir": {}},
                {"name": "flux-install", "emptyDir": {}},
                {
                    "name": "demo-flux-entrypoint",
                    "configMap": {"name": "demo-flux-entrypoint", "defaultMode": 0o755},
                },
                {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
                {"name": "flux-curve", "secret": {"secretName": "demo-flux-curve", "defaultMode": 0o400}},
            ),
            init_containers=(
                {
                    "name": "flux-installer",
                    "image": DEFAULT_VIEW_IMAGE,
                    "command": ["/bin/bash", "/etc/flux-config/init.sh"],
                    "volumeMounts": [{"name": "flux-install", "mountPath": "/mnt/flux"}, SCRIPTS_MOUNT],
                },
            ),
        )
    }


def test_the_trainer_step_may_have_any_name() -> None:
    contribution = build(flux_runtime(name="worker", num_nodes=3))
    assert list(contribution.pods) == ["worker"]
    assert "hosts='demo-worker-0-[0-2]'\n" in contribution.objects[0]["data"]["init.sh"]


# Command of the runtime, of the job -> what comes after the script.
COMMANDS: dict[str, tuple[list[str] | None, list[str] | None, tuple[str, ...]]] = {
    "17: the job's": (["run"], ["python"], ("python",)),
    "18: words stay as they are": (None, ["sh", "-c", " a  b "], ("sh", "-c", " a  b ")),
    "the runtime's": (["run", "fast"], None, ("run", "fast")),
    "an empty one is not set": (["run"], [], ("run",)),
    "none": (None, None, ()),
}


@pytest.mark.parametrize(("runtime", "job", "expected"), COMMANDS.values(), ids=COMMANDS)
def test_commands(runtime: list[str] | None, job: list[str] | None, expected: tuple[str, ...]) -> None:
    spec = flux_runtime(container(**({"command": runtime} if runtime else {})))
    assert get_node(build(spec, num_nodes=1, command=job)).command == (*ENTRYPOINT, *expected)


def test_the_view_is_of_the_image_that_is_chosen() -> None:
    [installer] = build(env=env(FLUX_VIEW_IMAGE="view:2")).pods["node"].init_containers
    assert installer["image"] == "view:2"


def test_the_installer_runs_as_the_trainer_and_asks_for_what_quotas_count() -> None:
    amounts: Json = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "4"}
    node = container(
        resources={"limits": amounts, "requests": {"nvidia.com/gpu": "4"}, "claims": [{"name": "c"}]},
        securityContext={"runAsUser": 1000},
    )
    [installer] = build(flux_runtime(node)).pods["node"].init_containers
    assert installer["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}}
    assert installer["securityContext"] == {"runAsUser": 1000}


def test_shared_memory_of_the_runtime_stays() -> None:
    node = container(volumeMounts=[{"name": "dshm", "mountPath": "/dev/shm"}])
    contribution = build(flux_runtime(node))
    assert "/dev/shm" not in [mount["mountPath"] for mount in get_node(contribution).volume_mounts]
    assert "shared-memory" not in [volume["name"] for volume in contribution.pods["node"].volumes]


def test_a_volume_is_never_called_longer_than_kubernetes_lets_it_be() -> None:
    names = {}
    for length in (47, 48):
        contribution = build(name="a" * length)
        volume = contribution.pods["node"].volumes[2]
        assert volume["configMap"]["name"] == contribution.objects[0]["metadata"]["name"]
        assert volume["name"] in [mount["name"] for mount in get_node(contribution).volume_mounts]
        names[length] = volume["name"]
    assert names == {47: "a" * 47 + "-flux-entrypoint", 48: "flux-entrypoint"}


def test_a_job_of_no_nodes_can_be_rendered() -> None:
    assert "hosts='demo-node-0-[0]'\n" in build(num_nodes=0).objects[0]["data"]["init.sh"]
