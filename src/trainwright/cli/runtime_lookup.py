"""Which runtimes there are: those of the namespace, those installed for all, and the shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cached_property, partial

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.build_train_job import RunRequest, RuntimeChoice, choose_runtime_name
from trainwright.cli.caller_python import CallerPython
from trainwright.cli.finding import find_near_names
from trainwright.cli.job_rows import build_runtime_key
from trainwright.cli.mpirun import find_mpirun
from trainwright.cli.shipped_runtimes import is_shipped
from trainwright.cli.targets import AdmissionSource
from trainwright.errors import Forbidden, NotFound
from trainwright.runtimes import load_shipped_runtimes
from trainwright.template.replicated_jobs import get_pod_spec, list_replicated_jobs


class Origin(StrEnum):
    """Where a runtime comes from; earlier ones hide later ones of the same name."""

    NAMESPACE = "namespace"
    INSTALLED = "installed"
    SHIPPED = "shipped"


class KnownRuntime:
    """A runtime and where it comes from; read when it is asked for, since most commands need one of them."""

    def __init__(self, key: ObjectKey, origin: Origin, read: Callable[[], Runtime]) -> None:
        self.key = key
        self.origin = origin
        self._read = read

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime."""
        return self._read()


async def list_runtimes(source: AdmissionSource, namespace: str | None) -> list[KnownRuntime]:
    """Return the runtimes that jobs of a namespace (None: of any) can use, by name.

    A shipped runtime is hidden by an installed one of its name. A TrainingRuntime hides nothing: jobs name
    the kind.
    """
    own = (await source.cluster.list(TRAINING_RUNTIME, namespace)).items
    everywhere = [
        body for body in (await source.cluster.list(CLUSTER_TRAINING_RUNTIME)).items if not is_shipped(body)
    ]
    installed = {body["metadata"]["name"] for body in everywhere}
    shipped = source.list_shipped_runtimes()
    known = [
        *(_know(body, TrainingRuntime, Origin.NAMESPACE) for body in own),
        *(_know(body, ClusterTrainingRuntime, Origin.INSTALLED) for body in everywhere),
        *(
            KnownRuntime(
                ObjectKey(CLUSTER_TRAINING_RUNTIME, "", name),
                Origin.SHIPPED,
                partial(shipped.__getitem__, name),
            )
            for name in shipped
            if name not in installed
        ),
    ]
    order = list(Origin)
    return sorted(known, key=lambda entry: (entry.key.name, order.index(entry.origin)))


def _know(body: Json, kind: type[TrainingRuntime | ClusterTrainingRuntime], origin: Origin) -> KnownRuntime:
    meta = body["metadata"]
    key = ObjectKey(kind.__name__, meta.get("namespace") or "", meta["name"])
    return KnownRuntime(key, origin, partial(parse_object, body, kind))


async def list_runtime_nodes(
    source: AdmissionSource, namespace: str | None, train_jobs: Iterable[TrainJob]
) -> dict[ObjectKey, int]:
    """Return how many training nodes the runtimes of jobs that do not say bring to them.

    Nothing where the caller may not read runtimes: it is one column of a table.
    """
    wanted = {build_runtime_key(train_job) for train_job in train_jobs if not _says_nodes(train_job)}
    if not wanted:
        return {}
    try:
        known = await list_runtimes(source, namespace)
    except Forbidden:
        return {}
    policies = {
        entry.key: entry.runtime.spec.ml_policy if entry.runtime.spec else None
        for entry in known
        if entry.key in wanted
    }
    return {
        key: policy.num_nodes if policy and policy.num_nodes is not None else 1
        for key, policy in policies.items()
    }


def _says_nodes(train_job: TrainJob) -> bool:
    trainer = train_job.spec.trainer if train_job.spec else None
    return trainer is not None and trainer.num_nodes is not None


def choose_runtime(
    known: Sequence[KnownRuntime], request: RunRequest, python: CallerPython | None
) -> tuple[Runtime, RuntimeChoice]:
    """Return the runtime of a job made from the command line: the one that is named, else the one that fits.

    A name alone does not tell the kind: the namespace's own runtime comes first. Raises NotFound.
    """
    name = request.runtime if request.runtime is not None else choose_runtime_name(request.entry, python)
    runtime = find_runtime(known, name)
    policy = runtime.spec.ml_policy if runtime.spec else None
    kind = TRAINING_RUNTIME if runtime.kind == TRAINING_RUNTIME else None
    is_torch = policy is not None and policy.torch is not None
    choice = RuntimeChoice(
        name=name,
        kind=kind,
        is_torch=is_torch,
        mpirun=find_mpirun(runtime),
        has_resources=_has_resources(runtime),
    )
    return runtime, choice


def _has_resources(runtime: Runtime) -> bool:
    template = (runtime.spec.template.spec if runtime.spec and runtime.spec.template else None) or {}
    return any(
        container.get("resources")
        for replicated_job in list_replicated_jobs(template)
        for container in get_pod_spec(replicated_job).get("containers") or ()
    )


def find_runtime(known: Sequence[KnownRuntime], name: str) -> Runtime:
    """Return the runtime of this name, the namespace's own first. Raises NotFound naming the known ones."""
    found = next((entry for entry in known if entry.key.name == name), None)
    if found is None:
        names = sorted({entry.key.name for entry in known})
        if name in load_shipped_runtimes():
            hint = "it comes with trainwright, but is not installed there: see `trainwright install`"
            raise NotFound("Runtime", name, hint)
        near = find_near_names(name, names)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
        raise NotFound("Runtime", name, hint)
    return found.runtime
