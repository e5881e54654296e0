"""What the API server would refuse in the resources of the container that trains.

It is asked only when a Job makes its pods, long after the TrainJob was taken. So its rules about names and
amounts are here. They are about the merged resources, the runtime's with the TrainJob's over them; an error
is told where the TrainJob has the resource, else at its reference to the runtime.
Source: Kubernetes documentation, "Resource Management for Pods and Containers" and "Manage HugePages"; case
B005.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainwright.admission.verdict import refuse
from trainwright.api.meta import Json
from trainwright.api.names import explain_label_key
from trainwright.api.quantity import ZERO, parse_quantity
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import JobLayout

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_PATH: Final = "spec.trainer.resourcesPerNode"


def find_node_resource_errors(layout: JobLayout) -> Iterator[FieldError]:
    """Yield why no pod could have the resources of a node."""
    merged, own = layout.trainer_resources, layout.trainer.resources_per_node
    yield from _find_claim_errors(merged, layout)
    limits, requests = merged.get("limits") or {}, merged.get("requests") or {}
    amounts = {"limits": limits, "requests": requests}
    asked = {"limits": (own and own.limits) or {}, "requests": (own and own.requests) or {}}
    names = {**limits, **requests}
    for name in names:
        first = "limits" if name in limits else "requests"
        problem = _explain_name(name)
        problems = [(first, problem)] if problem else list(_explain_amounts(name, amounts))
        if not problems and name in requests:
            difference = _explain_difference(name, requests[name], limits.get(name), asked["requests"])
            problems = [("requests", difference)] if difference else []
        if not problems and name.startswith(_HUGE_PAGES) and not {"cpu", "memory"} & names.keys():
            problems = [
                (first, "huge pages are given beside cpu or memory only; ask for one of these as well")
            ]
        for group, detail in problems:
            yield _refuse(name, group, detail, amounts, asked)


def _find_claim_errors(merged: Json, layout: JobLayout) -> Iterator[FieldError]:
    """Yield an error for each claim of the container that its pod does not have."""
    pod_set = layout.training_pod_set
    known = [claim["name"] for claim in (pod_set.pod_spec if pod_set else {}).get("resourceClaims") or ()]
    for claim in merged.get("claims") or ():
        name = claim["name"]
        if name in known:
            continue
        remedy = (
            f"use one of {', '.join(known)}" if known else "add it to resourceClaims of the runtime's pods"
        )
        detail = f"the pods that train have no resource claim {name!r}; {remedy}"
        own = layout.trainer.resources_per_node
        places = [j for j, asked in enumerate((own and own.claims) or ()) if asked["name"] == name]
        path = f"{_PATH}.claims[{places[0]}].name" if places else "spec.runtimeRef"
        yield refuse(path, Rule.NOT_FOUND, detail, name)


def _refuse(
    name: str,
    group: str,
    detail: str,
    amounts: Mapping[str, Mapping[str, Any]],
    asked: Mapping[str, Mapping[str, Any]],
) -> FieldError:
    value = amounts[group][name]
    if any(name in found for found in asked.values()):
        return refuse(f"{_PATH}.{group}[{name}]", Rule.INVALID, detail, value)
    place = f"the container that trains has resources.{group}[{name}]: {value} in the runtime"
    return refuse("spec.runtimeRef", Rule.INVALID, f"{place}: {detail}", value)


def _explain_name(name: str) -> str | None:
    if name in _STANDARD or name.startswith(_HUGE_PAGES):
        return None
    domain, slash, _ = name.partition("/")
    if not slash:
        known = ", ".join([*sorted(_STANDARD), f"{_HUGE_PAGES}SIZE"])
        return (
            f"is no resource of a container ({known} are); devices have the domain of their vendor before "
            "them, such as nvidia.com/gpu"
        )
    if problem := explain_label_key(name):
        return problem.replace("label key", "name of a resource")
    if domain.startswith("requests."):
        return "is what a quota calls a resource; leave out 'requests.'"
    return None


def _explain_amounts(name: str, amounts: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for group, found in amounts.items():
        if name not in found:
            continue
        quantity = parse_quantity(found[name])
        if quantity < ZERO:
            yield group, f"may not be below 0, is {found[name]}"
        elif _is_extended(name) and quantity.exact().denominator != 1:
            yield group, f"devices are given out whole, {found[name]} is none; ask for a whole number"


def _explain_difference(name: str, requested: Any, limit: Any, asked: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a request beside its limit.

    Requests may not be above limits. Devices and huge pages cannot be overcommitted: what is requested must
    be the limit as well.
    """
    merged = "with the runtime's own values merged in"
    is_exact = _is_extended(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        needs = f"needs the same limit, else no pod can be made; set limits: {{{name}: {requested}}}"
        return needs if is_exact else None
    if is_exact and parse_quantity(requested) != parse_quantity(limit):
        remedy = "leave the request out"
        if name not in asked:
            remedy = f"the runtime requests {requested}, so set requests: {{{name}: {limit}}} as well"
        return f"must be {limit} as the limit is ({merged}); {remedy}"
    if parse_quantity(requested) > parse_quantity(limit):
        detail = f"each node asks for {requested} but may use {limit} at most ({merged})"
        return f"{detail}; raise the limit or ask for less"
    return None


def _is_extended(name: str) -> bool:
    """Say whether a resource is one that Kubernetes does not know by itself: `vendor.com/device`."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
