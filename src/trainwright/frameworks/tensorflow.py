"""TensorFlow: `TF_CONFIG`, which lists all tasks of the cluster and says which one the pod is.

Each replicated job that takes part is one type of task: chief, worker, ps or evaluator. The list is the same
in every pod and written into the template; the task's own index, which is not, is left to Kubernetes
(`frameworks.pod_index`). Form and order are those of the Training Operator, down to the evaluator in the
list, which TensorFlow asks for: a job that comes from there reads what it did before.
Source: spec 06 section 5.2; tf.distribute.cluster_resolver.TFConfigClusterResolver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from trainwright.api.constants import (
    ANCESTOR_DATASET_INITIALIZER,
    ANCESTOR_MODEL_INITIALIZER,
    NODE,
    TF_CONFIG,
    TF_TASK_INDEX,
    TRAINER_PORT,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, TensorFlowTask
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.frameworks.pod_index import build_index_env, find_index_errors, refer_to, refuse_runtime
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import find_named, get_part

RESERVED_ENV: Final = frozenset({TF_CONFIG, TF_TASK_INDEX})
# A container port of this name is where its task listens, as in the Training Operator.
PORT_NAME: Final = "tfjob-port"
TYPES: Final = ("chief", "evaluator", "master", "ps", "worker")
CHIEFS: Final = frozenset({"chief", "master"})
WORKER: Final = "worker"
SERVER: Final = "ps"
EVALUATOR: Final = "evaluator"

# What Linux takes as one variable (MAX_ARG_STRLEN), the name and the end of the text included.
MOST_BYTES: Final = 128 * 1024


class TensorFlow:
    """A cluster of tasks that know each other by name."""

    name = "tensorflow"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has a tensorflow block."""
        return policy is not None and policy.tensorflow is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what keeps the pods from being told who they are, and from being told at all."""
        tasks = find_tasks(layout)
        return [
            *_check_tasks(layout, tasks),
            *find_index_errors(tasks.values(), RESERVED_ENV, self.name),
            *find_reserved_env_errors(layout.trainer, RESERVED_ENV, self.name),
            *_check_chief(layout, tasks),
            *_check_length(layout, tasks),
        ]

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return where processes are asked for that nobody starts, and servers waited for that never end."""
        return [*_warn_of_processes(layout), *_warn_of_servers(layout)]

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return for each type of task its variables, and its port where the container names none."""
        tasks = find_tasks(layout)
        cluster = _build_cluster(layout, tasks)
        return Contribution(
            pods={
                pod_set.name: PodAddition(containers={NODE: _build_addition(cluster, kind, pod_set)})
                for kind, pod_set in tasks.items()
            }
        )


def find_tasks(layout: JobLayout) -> dict[str, PodSet]:
    """Return the replicated job of each type of task, by type; the first one of a type counts.

    Where the runtime lists none, the trainer step is the workers unless its name is another type, and every
    other replicated job whose name is a type is that.
    """
    tasks: dict[str, PodSet] = {}
    for kind, pod_set in _list_candidates(layout):
        tasks.setdefault(kind, pod_set)
    return dict(sorted(tasks.items()))


def _list_candidates(layout: JobLayout) -> list[tuple[str, PodSet]]:
    chosen = _get_choices(layout)
    if not chosen:
        return list(_list_by_name(layout))
    found = ((task.type, layout.find_pod_set(task.job_name)) for task in chosen)
    return [(kind, pod_set) for kind, pod_set in found if pod_set is not None]


def _get_choices(layout: JobLayout) -> list[TensorFlowTask]:
    policy = layout.policy.tensorflow if layout.policy else None
    return (policy.tasks if policy else None) or []


def _list_by_name(layout: JobLayout) -> Iterator[tuple[str, PodSet]]:
    trainer = layout.trainer_pod_set
    if trainer is not None:
        yield (trainer.name if trainer.name in TYPES else WORKER), trainer
    for pod_set in layout.pod_sets:
        is_initializer = pod_set.ancestor in (ANCESTOR_DATASET_INITIALIZER, ANCESTOR_MODEL_INITIALIZER)
        if pod_set.name in TYPES and pod_set != trainer and not is_initializer:
            yield pod_set.name, pod_set


# -- TF_CONFIG ---------------------------------------------------------------------------------------------


def _build_cluster(layout: JobLayout, tasks: dict[str, PodSet]) -> str:
    """Return the cluster as JSON, types in alphabetical order."""
    cluster = {
        kind: [f"{host}:{_get_port(pod_set)}" for host in layout.iterate_endpoints(pod_set)]
        for kind, pod_set in tasks.items()
    }
    return msgspec.json.encode(cluster).decode()


def _build_config(cluster: str, kind: str, index: str) -> str:
    return f'{{"cluster":{cluster},"task":{{"type":"{kind}","index":{index}}},"environment":"cloud"}}'


def _build_addition(cluster: str, kind: str, pod_set: PodSet) -> ContainerAddition:
    config = _build_config(cluster, kind, refer_to(TF_TASK_INDEX))
    ports = () if _find_own_port(pod_set) else ({"containerPort": TRAINER_PORT},)
    return ContainerAddition(
        env=(build_index_env(TF_TASK_INDEX), {"name": TF_CONFIG, "value": config}), ports=ports
    )


def _get_port(pod_set: PodSet) -> int:
    port = _find_own_port(pod_set)
    number: int = port["containerPort"] if port else TRAINER_PORT
    return number


def _find_own_port(pod_set: PodSet) -> Json | None:
    node = pod_set.find_container(NODE)
    return find_named((node or {}).get("ports"), PORT_NAME)


# -- admission ---------------------------------------------------------------------------------------------


def _warn_of_processes(layout: JobLayout) -> Iterator[str]:
    wanted = layout.trainer.num_proc_per_node
    if wanted not in (None, 1):
        yield (
            f"spec.trainer.numProcPerNode is {wanted}, which has no effect: TensorFlow runs one process on "
            "each node and gives it all accelerators; leave it out, or ask for more nodes"
        )


def _warn_of_servers(layout: JobLayout) -> Iterator[str]:
    """Warn of a job that waits for its servers.

    What it should wait for is the chief, where there is one: the workers that it commands are servers
    themselves (ParameterServerStrategy), and where they are not (estimators) it ends no sooner than they.
    """
    tasks = find_tasks(layout)
    servers = tasks.get(SERVER)
    if servers is not None and _waits_for(layout, servers):
        chiefs = [tasks[kind].name for kind in tasks if kind in CHIEFS]
        workers = [pod_set.name for kind, pod_set in tasks.items() if kind not in (SERVER, EVALUATOR)]
        goal, names = ("its chief is", chiefs) if chiefs else ("its workers are", workers)
        yield (
            f"parameter servers never end, but the job waits for replicated job {servers.name!r}: to let it "
            f"be complete when {goal}, set successPolicy: {{operator: All, targetReplicatedJobs: "
            f"[{', '.join(names)}]}} in the runtime"
        )


def _check_tasks(layout: JobLayout, tasks: dict[str, PodSet]) -> Iterator[FieldError]:
    """Check what the runtime says about types: it may name what is not there, or the same twice."""
    chosen, candidates, trainer = _get_choices(layout), _list_candidates(layout), layout.trainer_pod_set
    place = "spec.mlPolicy.tensorflow.tasks of the runtime"
    for task in chosen:
        if layout.find_pod_set(task.job_name) is None:
            known = ", ".join(repr(pod_set.name) for pod_set in layout.pod_sets)
            detail = (
                f"{place} names a replicated job {task.job_name!r}, which is not there; use one of {known}"
            )
            yield refuse_runtime(detail, task.job_name)
    if chosen and trainer is not None and trainer not in [pod_set for _, pod_set in candidates]:
        detail = (
            f"{place} lacks the trainer step {trainer.name!r}, which would be no part of the cluster; add it"
        )
        yield refuse_runtime(detail, trainer.name)
    for kind, number in sorted(Counter(kind for kind, _ in candidates).items()):
        if number > 1:
            yield refuse_runtime(
                f"{number} replicated jobs of the runtime are tasks of type {kind}, whose indexes would be "
                "the same; make it one with more pods",
                kind,
            )
    if tasks.keys() >= CHIEFS:
        yield refuse_runtime(
            "a cluster has one chief, but the runtime has a chief and a master, which is the same; "
            "remove one",
            "master",
        )


def _check_chief(layout: JobLayout, tasks: dict[str, PodSet]) -> Iterator[FieldError]:
    for kind in sorted(CHIEFS & tasks.keys()):
        chief = tasks[kind]
        if chief.count > 1:
            detail = f"a cluster has one {kind}, and {chief.count} pods of {chief.name!r} would be it"
            if chief == layout.trainer_pod_set and layout.trainer.num_nodes is not None:
                yield FieldError(
                    path="spec.trainer.numNodes",
                    rule=Rule.INVALID,
                    detail=f"{detail}; make it 1, or use a runtime in which the trainer step is the workers",
                    value=layout.trainer.num_nodes,
                )
            else:
                yield refuse_runtime(f"{detail}; make it 1", kind)


def _check_length(layout: JobLayout, tasks: dict[str, PodSet]) -> Iterator[FieldError]:
    """Check that the longest TF_CONFIG fits into one variable, or no process of the job could be started."""
    cluster = _build_cluster(layout, tasks)
    longest = max(
        (len(_build_config(cluster, kind, str(pod_set.count))) for kind, pod_set in tasks.items()), default=0
    )
    if longest + len(TF_CONFIG) + 2 > MOST_BYTES:
        pods = sum(pod_set.count for pod_set in tasks.values())
        yield FieldError(
            path="spec.trainer.numNodes",
            rule=Rule.TOO_MANY,
            detail=f"TF_CONFIG with the addresses of {pods} tasks has {longest} bytes, a variable at most "
            f"{MOST_BYTES}; use fewer nodes, or a shorter name",
            value=layout.trainer.num_nodes,
        )


def _waits_for(layout: JobLayout, pod_set: PodSet) -> bool:
    """Say whether the JobSet succeeds only when this replicated job does."""
    policy = get_part(layout.template.spec, "successPolicy")
    targets = policy.get("targetReplicatedJobs") or []
    return policy.get("operator", "All") == "All" and (not targets or pod_set.name in targets)
