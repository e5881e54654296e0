"""What each training node asks for: merging `trainer.resourcesPerNode`, and counting accelerators and CPUs.

Counts are always taken from the merged resources, so that a runtime with 4 GPUs whose TrainJob adds CPUs
still counts 4 GPUs. Source: spec 01 section 5.2 (D), spec 02 section 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trainwright.api.encoding import build_json
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.quantity import ZERO, Quantity, parse_quantity
from trainwright.template.merge import KeyedList, merge

_CLAIMS: Final = {"claims": KeyedList(key="name", replaces=True)}


def merge_resources(original: Json, change: ResourceRequirements) -> Json:
    """Return core/v1 ResourceRequirements: limits and requests merged per resource name, claims by name.

    The change wins.
    """
    return merge(original, build_json(change), _CLAIMS)


def canonicalize_amounts(resources: Json) -> Json:
    """Return the resources with amounts as Kubernetes writes them: `0.5` is `500m`, `2` is `"2"`."""
    return {
        field: {name: str(parse_quantity(amount)) for name, amount in value.items()}
        if field in ("limits", "requests") and value
        else value
        for field, value in resources.items()
    }


class AcceleratorNames(msgspec.Struct, frozen=True, kw_only=True):
    """Which extended resources are accelerators that a training process drives.

    `substrings` match anywhere in the name, without regard to case; `names` are whole names. Not a device is
    what measures a share of one: schedulers that share GPUs have pods ask for memory and cores of them in
    resources of their own (`nvidia.com/gpumem: 3000`), beside the number of GPUs.
    """

    substrings: tuple[str, ...] = ("gpu", "/mig-")
    shares: tuple[str, ...] = ("mem", "core", "percent", "ratio", "tiles", "monitoring")
    names: frozenset[str] = frozenset()

    def match(self, resource: str) -> bool:
        """Say whether the resource of that name is an accelerator."""
        lowered = resource.lower()
        is_share = any(part in lowered.rpartition("/")[2] for part in self.shares)
        return resource in self.names or (not is_share and any(part in lowered for part in self.substrings))


# GPUs of any vendor and slices of NVIDIA's. Others, such as TPUs and Gaudi, are for a runtime to name:
# whether a process drives one of them, or all of a node, depends on the program.
DEFAULT_ACCELERATORS: Final = AcceleratorNames()


def count_accelerators(resources: Json, accelerators: AcceleratorNames = DEFAULT_ACCELERATORS) -> int:
    """Return the number of accelerators of a container: the sum over all of their resource names, rounded up.

    Each amount is the request, or the limit where nothing is requested.
    """
    requests, limits = _amounts(resources, "requests"), _amounts(resources, "limits")
    names = sorted(name for name in {**limits, **requests} if accelerators.match(name))
    return sum((_requested_or_limit(requests, limits, name) for name in names), start=ZERO).ceil()


def count_cpus(resources: Json) -> int:
    """Return the number of CPUs of a container, rounded up: the request, else the limit, else 0."""
    return _requested_or_limit(_amounts(resources, "requests"), _amounts(resources, "limits"), "cpu").ceil()


def _amounts(resources: Json, field: str) -> Mapping[str, Any]:
    return resources.get(field) or {}


def _requested_or_limit(requests: Mapping[str, Any], limits: Mapping[str, Any], name: str) -> Quantity:
    requested = parse_quantity(requests.get(name, 0))
    return requested or parse_quantity(limits.get(name, 0))
