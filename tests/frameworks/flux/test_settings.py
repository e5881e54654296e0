"""Which view image, network device and queue policy a job gets."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks.flux.builders import env, flux_layout, flux_runtime
from template.builders import container
from trainwright.api.meta import Json
from trainwright.field_errors import Rule
from trainwright.frameworks.flux import Flux
from trainwright.frameworks.flux.settings import DEFAULT_VIEW_IMAGE, Settings, read_settings

DEFAULTS = {"view_image": DEFAULT_VIEW_IMAGE, "network_device": "eth0", "queue_policy": "fcfs"}

# Variables of the runtime and of the job -> what is not as by default.
SETTINGS: dict[str, tuple[list[Json], list[Json], dict[str, str]]] = {
    "nothing said": ([], env(OTHER="x"), {}),
    "the runtime's": (env(FLUX_QUEUE_POLICY="easy"), [], {"queue_policy": "easy"}),
    "the job's over the runtime's": (
        env(FLUX_VIEW_IMAGE="old", FLUX_NETWORK_DEVICE="ib0"),
        env(FLUX_VIEW_IMAGE="new"),
        {"view_image": "new", "network_device": "ib0"},
    ),
    "an empty one is not set": (
        env(FLUX_NETWORK_DEVICE="ib0"),
        env(FLUX_NETWORK_DEVICE=""),
        {"network_device": "ib0"},
    ),
    "a source of the runtime's is not a value": (
        [{"name": "FLUX_QUEUE_POLICY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        [],
        {},
    ),
}


@pytest.mark.parametrize(("runtime", "job", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_settings(runtime: list[Json], job: list[Json], expected: dict[str, str]) -> None:
    layout = flux_layout(flux_runtime(container(env=runtime)), env=job)
    assert read_settings(layout) == Settings(**{**DEFAULTS, **expected})


SOURCE = [{"name": "FLUX_VIEW_IMAGE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]

# Variables of the runtime and of the job -> path and value of the error.
REFUSED: dict[str, tuple[list[Json], list[Json], tuple[str, Any]]] = {
    "a value that only the pod will know": (
        [],
        [*env(A="1"), *SOURCE],
        ("spec.trainer.env[1]", "FLUX_VIEW_IMAGE"),
    ),
    "no device": ([], env(FLUX_NETWORK_DEVICE="eth0 eth1"), ("spec.trainer.env", "eth0 eth1")),
    "no device, of the runtime": (env(FLUX_NETWORK_DEVICE="a:b"), [], ("spec.runtimeRef", "a:b")),
    "a line end after it": ([], env(FLUX_NETWORK_DEVICE="eth0\n"), ("spec.trainer.env", "eth0\n")),
}


@pytest.mark.parametrize(("runtime", "job", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(runtime: list[Json], job: list[Json], expected: tuple[str, Any]) -> None:
    [error] = Flux().validate(flux_layout(flux_runtime(container(env=runtime)), env=job))
    assert (error.rule, error.path, error.value) == (Rule.INVALID, *expected)


@pytest.mark.parametrize("device", ["eth0", "ib0.100", "eth0@if3", "127.0.0.1", "*"])
def test_devices(device: str) -> None:
    assert Flux().validate(flux_layout(env=env(FLUX_NETWORK_DEVICE=device))) == []


def test_a_policy_that_fluxion_does_not_know_is_a_warning() -> None:
    [warning] = Flux().list_warnings(flux_layout(env=env(FLUX_QUEUE_POLICY="lifo")))
    assert warning == "FLUX_QUEUE_POLICY is 'lifo'; Fluxion knows fcfs, easy, conservative, hybrid"
    assert Flux().list_warnings(flux_layout(env=env(FLUX_QUEUE_POLICY="hybrid"))) == []
