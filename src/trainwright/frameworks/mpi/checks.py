"""What keeps an MPI job from being rendered, and what its user should know (spec 02 section 6.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from trainwright.api.constants import LAUNCHER, NODE
from trainwright.api.meta import Json
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import find_reserved_env_errors
from trainwright.frameworks.mpi.environment import RESERVED_ENV
from trainwright.frameworks.mpi.hostfile import OPEN_MPI
from trainwright.frameworks.mpi.keys import get_mount_path, get_user
from trainwright.frameworks.mpi.nodes import count_nodes, count_slots, get_policy, is_launcher_a_node
from trainwright.frameworks.pod_index import find_unnumbered_errors
from trainwright.frameworks.processes import list_uncounted_warnings
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import find_named, get_part, list_replicated_jobs
from trainwright.template.resources import count_accelerators

# Programs that run once, where they are started. (Those that start ranks are too many to name.)
_SINGLE_PROGRAMS: Final = ("python", "torchrun", "accelerate")


def find_errors(layout: JobLayout) -> list[FieldError]:
    """Return what would leave the job on one host, or its pods without keys."""
    implementation = get_policy(layout).mpi_implementation or OPEN_MPI
    if implementation not in RESERVED_ENV:
        return [
            FieldError(
                path="spec.runtimeRef",
                rule=Rule.NOT_SUPPORTED,
                detail=f"the runtime's mpiImplementation is {implementation!r}; "
                f"known are {', '.join(sorted(RESERVED_ENV))}",
                value=implementation,
            )
        ]
    return [
        *_check_roles(layout),
        *(error for pod_set in _list_roles(layout) for error in find_unnumbered_errors(pod_set)),
        *_check_containers(layout),
        *find_reserved_env_errors(layout.trainer, RESERVED_ENV[implementation], "mpi"),
    ]


def list_warnings(layout: JobLayout) -> list[str]:
    """Return what may leave accelerators idle, ranks unstarted or the job unfinished."""
    return [
        *_warn_of_accelerators(layout),
        *_warn_of_single_programs(layout),
        *_warn_of_unreadable_keys(layout),
        *_warn_of_waiting(layout),
    ]


def must_wait_for_nodes(layout: JobLayout) -> bool:
    """Say whether the launcher has to be told to wait until the nodes are ready (case B074).

    Not where JobSet starts replicated jobs in order, which excludes it, nor where the nodes wait for the
    launcher, or for something that does.
    """
    if layout.find_pod_set(NODE) is None or LAUNCHER in _list_awaited(layout, NODE):
        return False
    order: str | None = get_part(layout.template.spec, "startupPolicy").get("startupPolicyOrder")
    return order != "InOrder"


def _check_roles(layout: JobLayout) -> Iterator[FieldError]:
    """Check that there is a launcher, and nodes for it: without either, each pod would train by itself."""
    nodes = count_nodes(layout)
    missing = [name for name in (LAUNCHER, NODE) if layout.find_pod_set(name) is None]
    if nodes < 2 or not missing:
        return
    lacks = f"the runtime has no replicated job {' and no '.join(map(repr, missing))}"
    remedy = f"set numNodes to 1, or use a runtime with both {LAUNCHER!r} and {NODE!r}"
    if layout.trainer.num_nodes is None:
        detail = f"its mlPolicy.numNodes is {nodes}, but {lacks}; {remedy}"
        yield FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=nodes)
    else:
        detail = f"must be 1, because {lacks}; {remedy}"
        yield FieldError(path="spec.trainer.numNodes", rule=Rule.INVALID, detail=detail, value=nodes)


def _check_containers(layout: JobLayout) -> Iterator[FieldError]:
    """Check that the container is there that gets keys, hosts and the TrainJob's settings."""
    for pod_set in _list_roles(layout):
        if find_named(pod_set.containers, NODE) is None:
            names = ", ".join(repr(container["name"]) for container in pod_set.containers)
            detail = (
                f"the container of the runtime's replicated job {pod_set.name!r} must be called {NODE!r} to "
                f"get ssh keys and hosts; it has {names}"
            )
            yield FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=pod_set.name)


def _warn_of_accelerators(layout: JobLayout) -> Iterator[str]:
    slots = count_slots(layout)
    accelerators = count_accelerators(layout.trainer_resources, layout.accelerators)
    if slots == 1 and layout.trainer.num_proc_per_node is None:
        yield from list_uncounted_warnings(layout)
    if 0 < accelerators < slots:
        yield (
            f"{slots} processes run on each node, which asks for {accelerators} accelerator(s) only: they "
            "would have to share them; set spec.trainer.numProcPerNode"
        )
    if accelerators > slots:
        yield (
            f"{slots} processes run on each node, which asks for {accelerators} accelerators: "
            f"{accelerators - slots} of them may stay idle; set spec.trainer.numProcPerNode"
        )


def _warn_of_single_programs(layout: JobLayout) -> Iterator[str]:
    """Warn of a command that is no mpirun, where we know it: it runs in the launcher, and there alone."""
    program = PurePosixPath(layout.trainer.command[0]).name if layout.trainer.command else ""
    is_alone = is_launcher_a_node(layout) and count_nodes(layout) * count_slots(layout) == 1
    if program.startswith(_SINGLE_PROGRAMS) and layout.find_pod_set(LAUNCHER) is not None and not is_alone:
        yield (
            f"spec.trainer.command starts {program}, which runs once, in the launcher, and on no other node; "
            "to run it on all of them put mpirun before it"
        )


def _warn_of_unreadable_keys(layout: JobLayout) -> Iterator[str]:
    """Warn where keys belong to root's group and the container to neither."""
    for pod_set in _list_roles(layout):
        container = find_named(pod_set.containers, NODE) or {}
        user = get_user(container, pod_set)
        has_group = "fsGroup" in (pod_set.pod_spec.get("securityContext") or {})
        if user and not has_group:
            yield (
                f"pods of {pod_set.name} run as user {user} without securityContext.fsGroup: ssh cannot read "
                f"the keys in {get_mount_path(layout)}; set fsGroup in the runtime"
            )


def _warn_of_waiting(layout: JobLayout) -> Iterator[str]:
    """Warn of a launcher that never starts, and of a job that never ends, because nodes never do."""
    spec = layout.template.spec or {}
    launcher = find_named(list_replicated_jobs(spec), LAUNCHER)
    if launcher is None or layout.find_pod_set(NODE) is None:
        return
    dependency = _find_dependency(launcher, NODE)
    if dependency is not None and dependency.get("status") == "Complete":
        yield (
            "the launcher waits until the nodes are complete, which they never are while sshd runs; in the "
            "runtime let it depend on node with status Ready"
        )
    policy = spec.get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or []
    if policy.get("operator", "All") == "All" and (not targets or NODE in targets):
        yield (
            "the job is complete only when the nodes end as well, which they never do while sshd runs; set "
            f"successPolicy in the runtime: {{operator: All, targetReplicatedJobs: [{LAUNCHER}]}}"
        )


def _list_roles(layout: JobLayout) -> list[PodSet]:
    found = (layout.find_pod_set(LAUNCHER), layout.find_pod_set(NODE))
    return [pod_set for pod_set in found if pod_set is not None]


def _list_awaited(layout: JobLayout, name: str) -> set[str]:
    """Return the replicated jobs that one waits for, and those that these wait for."""
    replicated_jobs = list_replicated_jobs(layout.template.spec)
    awaited: set[str] = set()
    waiting = [name]
    while waiting:
        found = find_named(replicated_jobs, waiting.pop()) or {}
        others = {dependency["name"] for dependency in found.get("dependsOn") or ()} - awaited
        awaited |= others
        waiting += others
    return awaited


def _find_dependency(replicated_job: Json, name: str) -> Json | None:
    return find_named(replicated_job.get("dependsOn"), name)
