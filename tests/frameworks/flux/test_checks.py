"""What keeps a Flux job from being rendered, and what its user is told."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks.flux.builders import flux_layout, flux_runtime
from template.builders import PLAIN, container, runtime_spec
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import RuntimeSpec
from trainwright.field_errors import Rule
from trainwright.frameworks.flux import Flux

INSTALLER = [container("flux-installer")]
ACTIVE = {
    "1: no policy": (runtime_spec(policy=None), False),
    "a policy that names no framework": (runtime_spec(policy=PLAIN), False),
    "2: flux": (flux_runtime(), True),
}


@pytest.mark.parametrize(("spec", "active"), ACTIVE.values(), ids=ACTIVE)
def test_when_it_takes_part(spec: RuntimeSpec, active: bool) -> None:
    assert Flux().is_active(spec.ml_policy) is active


def test_4_a_policy_alone_is_good() -> None:
    assert (Flux().validate(flux_layout()), Flux().list_warnings(flux_layout())) == ([], [])


# Runtime -> path and value of the error.
REFUSED = {
    "5: an init container of the reserved name": (
        flux_runtime(initContainers=INSTALLER),
        ("spec.trainer.initContainers", "flux-installer"),
    ),
    "the network of the machine": (
        flux_runtime(num_nodes=2, hostNetwork=True),
        ("spec.runtimeRef", "hostNetwork"),
    ),
    "a host name with its domain": (
        flux_runtime(num_nodes=2, setHostnameAsFQDN=True),
        ("spec.runtimeRef", "setHostnameAsFQDN"),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(spec: RuntimeSpec, expected: tuple[str, str]) -> None:
    [error] = Flux().validate(flux_layout(spec))
    assert (error.rule, error.path, error.value) == (Rule.INVALID, *expected)


def test_one_node_on_the_network_of_the_machine_has_no_others_to_find() -> None:
    assert Flux().validate(flux_layout(flux_runtime(hostNetwork=True))) == []


NODE_OF_A_USER = container(command=["run"], securityContext={"runAsUser": 1000})

# Runtime, trainer block -> the beginning of the only warning.
WARNINGS: dict[str, tuple[RuntimeSpec, dict[str, Any], str]] = {
    "GPUs that do not go round": (
        flux_runtime(),
        {"num_proc_per_node": 3, "resources_per_node": ResourceRequirements(limits={"nvidia.com/gpu": "4"})},
        "3 tasks run on each node, which has 4 accelerators: 1 of them stay idle",
    ),
    "fewer GPUs than tasks": (
        flux_runtime(),
        {"num_proc_per_node": 4, "resources_per_node": ResourceRequirements(limits={"nvidia.com/gpu": "2"})},
        "4 tasks run on each node, which has 2 accelerators: Flux gives a task whole ones",
    ),
    "a line for a shell": (flux_runtime(), {"command": ["python train.py"]}, "the command is the one word"),
    "arguments of an unknown entrypoint": (
        flux_runtime(container()),
        {"args": ["--epochs", "3"]},
        "neither the job nor its runtime has a command, so Flux runs the first argument, '--epochs'",
    ),
    "a certificate that only root reads": (
        flux_runtime(NODE_OF_A_USER),
        {},
        "pods of node run as user 1000 without securityContext.fsGroup",
    ),
}


@pytest.mark.parametrize(("spec", "trainer", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_what_is_warned_of(spec: RuntimeSpec, trainer: dict[str, Any], expected: str) -> None:
    [warning] = Flux().list_warnings(flux_layout(spec, **trainer))
    assert warning.startswith(expected)


SILENT: dict[str, tuple[RuntimeSpec, dict[str, Any]]] = {
    "words with spaces in a list of several": (flux_runtime(), {"command": ["sh", "-c", "a b"]}),
    "a job without a command, for whoever logs in": (flux_runtime(container()), {}),
    "a user with a group of the files": (flux_runtime(NODE_OF_A_USER, securityContext={"fsGroup": 1}), {}),
    "GPUs that go round": (
        flux_runtime(),
        {"num_proc_per_node": 2, "resources_per_node": ResourceRequirements(limits={"nvidia.com/gpu": "4"})},
    ),
}


@pytest.mark.parametrize(("spec", "trainer"), SILENT.values(), ids=SILENT)
def test_what_is_right_is_not_warned_of(spec: RuntimeSpec, trainer: dict[str, Any]) -> None:
    assert Flux().list_warnings(flux_layout(spec, **trainer)) == []
