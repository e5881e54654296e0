"""What a runtime or a TrainJob may choose by variables of the trainer container (spec 02 section 9.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from trainwright.api.constants import FLUX_NETWORK_DEVICE, FLUX_QUEUE_POLICY, FLUX_VIEW_IMAGE, NODE
from trainwright.api.meta import Json
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import JobLayout

# Of a system like that of the application's image. Others: tag-noble, tag-focal, arm-jammy, arm-focal, and
# flux-view-rocky with tag-9, tag-8, arm-9, arm-8.
DEFAULT_VIEW_IMAGE: Final = "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"
NAMES: Final = frozenset({FLUX_VIEW_IMAGE, FLUX_NETWORK_DEVICE, FLUX_QUEUE_POLICY})
# What Fluxion, the scheduler of the views, knows.
QUEUE_POLICIES: Final = ("fcfs", "easy", "conservative", "hybrid")

# An interface of Linux, an address or `*`: what may stand between `tcp://` and the port.
_DEVICE: Final = re.compile(r"[\w.*@-]+", re.ASCII)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The image of the view, where brokers listen, and how Fluxion orders jobs."""

    view_image: str
    network_device: str
    queue_policy: str


def read_settings(layout: JobLayout) -> Settings:
    """Return the settings: the TrainJob's over the runtime's over the defaults; an empty one is not set."""
    chosen = {**_read_values(_list_runtime_env(layout)), **_read_values(layout.trainer.env or ())}
    return Settings(
        view_image=chosen.get(FLUX_VIEW_IMAGE, DEFAULT_VIEW_IMAGE),
        network_device=chosen.get(FLUX_NETWORK_DEVICE, "eth0"),
        queue_policy=chosen.get(FLUX_QUEUE_POLICY, "fcfs"),
    )


def find_setting_errors(layout: JobLayout) -> Iterator[FieldError]:
    """Yield what is set in a way that cannot be read here, or that no network device is called."""
    for i, entry in enumerate(layout.trainer.env or ()):
        if entry.get("name") in NAMES and "valueFrom" in entry:
            yield FieldError(
                path=f"spec.trainer.env[{i}]",
                rule=Rule.INVALID,
                detail=f"{entry['name']} is needed before any pod runs, so it must have a value of its own; "
                "replace valueFrom by value",
                value=entry["name"],
            )
    device = read_settings(layout).network_device
    if not _DEVICE.fullmatch(device):
        own = _read_values(layout.trainer.env or ()).get(FLUX_NETWORK_DEVICE) == device
        yield FieldError(
            path="spec.trainer.env" if own else "spec.runtimeRef",
            rule=Rule.INVALID,
            detail=f"{FLUX_NETWORK_DEVICE} must be the name of a network device of the pods, such as eth0",
            value=device,
        )


def list_setting_warnings(layout: JobLayout) -> Iterator[str]:
    """Yield a warning of a policy that Fluxion would refuse when it is loaded."""
    policy = read_settings(layout).queue_policy
    if policy not in QUEUE_POLICIES:
        yield f"{FLUX_QUEUE_POLICY} is {policy!r}; Fluxion knows {', '.join(QUEUE_POLICIES)}"


def _list_runtime_env(layout: JobLayout) -> list[Json]:
    trainer = layout.trainer_pod_set
    node = trainer.find_container(NODE) if trainer else None
    return (node or {}).get("env") or []


def _read_values(env: Iterable[Json]) -> dict[str, str]:
    return {
        entry["name"]: entry["value"] for entry in env if entry.get("name") in NAMES and entry.get("value")
    }
