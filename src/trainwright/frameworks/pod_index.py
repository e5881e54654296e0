"""Variables made of a pod's own index, which is known only when the pod runs.

Kubernetes puts the index into one variable, and expands a reference to it in another one: `$(RANK)`. That
works only where the first stands before the second, so neither may be in a runtime's template already: what
is there keeps its place in the list. The pods of a replicated job share one template, which is why the index
cannot be written into it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from trainwright.api.constants import NODE, RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.field_errors import FieldError, Rule
from trainwright.template.pod_sets import PodSet


def build_index_env(name: str) -> Json:
    """Return the variable that holds the index of its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}}


def refer_to(name: str) -> str:
    """Return what Kubernetes replaces by the value of a variable."""
    return f"$({name})"


def find_index_errors(
    pod_sets: Iterable[PodSet], variables: Collection[str], framework: str
) -> Iterator[FieldError]:
    """Yield why pods of these replicated jobs of a runtime cannot be told who they are."""
    for pod_set in pod_sets:
        place = f"replicated job {pod_set.name!r} of the runtime"
        node = pod_set.find_container(NODE)
        if node is None:
            yield refuse_runtime(
                f"{place} needs a container {NODE!r} for the {framework} framework", pod_set.name
            )
            continue
        taken = sorted({entry["name"] for entry in node.get("env") or () if entry.get("name") in variables})
        if taken:
            yield refuse_runtime(
                f"{place} sets {', '.join(taken)}, which the {framework} framework does from the job itself; "
                "remove it from the runtime",
                pod_set.name,
            )
        if pod_set.replicas != 1:
            yield refuse_runtime(
                f"{place} has {pod_set.replicas} replicas, whose pods have the same indexes; make it 1 and "
                "set parallelism",
                pod_set.name,
            )
        yield from find_unnumbered_errors(pod_set)


def find_unnumbered_errors(pod_set: PodSet | None) -> Iterator[FieldError]:
    """Yield an error where pods have no index, from which their ranks and host names come."""
    if pod_set is not None and not pod_set.has_indexes:
        yield refuse_runtime(
            f"replicated job {pod_set.name!r} of the runtime has completionMode NonIndexed, so its pods have "
            "no index; remove it",
            pod_set.name,
        )


def refuse_runtime(detail: str, value: object) -> FieldError:
    """Return an error of whoever refers to the runtime."""
    return FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=value)
