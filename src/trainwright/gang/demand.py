"""What pods ask for, as the scheduler counts it.

A pod's request is what its containers ask for while they run, or, where that is more, what an init container
asks for before; plus the overhead that the template names. A limit without a request is a request: the API
server makes it one before the scheduler sees the pod. What only a cluster knows (the overhead of a
RuntimeClass, the defaults of a LimitRange) is not in it, so that a job renders to the same bytes everywhere;
the scheduler counts it for each pod when it places the gang.

Source: Kubernetes documentation, "Init Containers: resource sharing", "Sidecar Containers" and "Assign
Pod-level CPU and memory resources"; spec 02 section 2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trainwright.api.meta import Json
from trainwright.api.quantity import ZERO, Quantity, parse_quantity
from trainwright.gang.members import Member
from trainwright.template.replicated_jobs import get_part

Amounts = Mapping[str, Quantity]

# What a pod as a whole may ask for; then the sum over its containers does not count.
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")


def sum_demand(members: Iterable[Member]) -> dict[str, str]:
    """Return what all pods of the members ask for together, by resource name, in Kubernetes' notation."""
    total: Amounts = {}
    for member in members:
        requests = sum_pod_requests(member.pod_spec)
        total = _add(total, {name: amount * member.pods for name, amount in requests.items()})
    return {name: str(total[name]) for name in sorted(total)}


def sum_pod_requests(pod_spec: Json) -> dict[str, Quantity]:
    """Return what one pod asks for, by resource name."""
    running: Amounts = {}
    for container in pod_spec.get("containers") or ():
        running = _add(running, _get_requests(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod_spec.get("initContainers") or ():
        requests = _get_requests(container)
        if container.get("restartPolicy") == "Always":  # runs on beside what comes after it
            running, sidecars = _add(running, requests), _add(sidecars, requests)
            starting = _take_larger(starting, sidecars)
        else:
            starting = _take_larger(starting, _add(sidecars, requests))
    needed = dict(_take_larger(running, starting))
    needed.update(_get_own_requests(pod_spec, needed))
    return _add(needed, _parse(get_part(pod_spec, "overhead")))


def _get_own_requests(pod_spec: Json, of_containers: Amounts) -> Amounts:
    """Return what the pod as a whole asks for, which counts instead of the sum over its containers.

    A limit of the pod is a request only of what none of its containers requests.
    """
    requests = _parse(get_part(pod_spec, "resources", "requests"))
    limits = _parse(get_part(pod_spec, "resources", "limits"))
    alone = {name: amount for name, amount in limits.items() if name not in of_containers}
    return {name: amount for name, amount in {**alone, **requests}.items() if name.startswith(_POD_LEVEL)}


def _get_requests(container: Json) -> Amounts:
    """Return the requests of a container; what only has a limit asks for that."""
    return {
        **_parse(get_part(container, "resources", "limits")),
        **_parse(get_part(container, "resources", "requests")),
    }


def _parse(amounts: Json) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _add(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {name: one.get(name, ZERO) + other.get(name, ZERO) for name in {**one, **other}}


def _take_larger(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {name: max(one.get(name, ZERO), other.get(name, ZERO)) for name in {**one, **other}}
