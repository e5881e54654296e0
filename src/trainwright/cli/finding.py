"""Get one object by name, or say that there is none and which names come near."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.port import Cluster
from trainwright.errors import Forbidden, NotFound

_NAMES_SHOWN = 3
_NEARLY_THE_SAME = 0.9


async def get_train_job(cluster: Cluster, namespace: str, name: str) -> TrainJob:
    """Return the TrainJob. Raises NotFound with the names that come near, or where else the name exists."""
    return parse_object(await get_train_job_json(cluster, namespace, name), TrainJob)


async def get_train_job_json(cluster: Cluster, namespace: str, name: str) -> Json:
    """Return the TrainJob as stored. Raises NotFound as `get_train_job` does."""
    try:
        return await cluster.get(ObjectKey(TRAIN_JOB, namespace, name))
    except NotFound:
        jobs = await _list_what_may_be_seen(cluster, namespace)
        raise NotFound(TRAIN_JOB, name, build_hint(namespace, name, jobs)) from None


async def _list_what_may_be_seen(cluster: Cluster, namespace: str) -> list[Json]:
    """Return the jobs of all namespaces, else of this one, else none."""
    for scope in (None, namespace):
        with contextlib.suppress(Forbidden):
            return (await cluster.list(TRAIN_JOB, scope)).items
    return []


def build_hint(namespace: str, name: str, jobs: Iterable[Json]) -> str:
    """Return what a caller who named a job that is not there probably wanted."""
    names: dict[str, list[str]] = {}
    for job in jobs:
        names.setdefault(job["metadata"].get("namespace", ""), []).append(job["metadata"]["name"])
    elsewhere = [other for other, held in names.items() if other != namespace and name in held]
    if elsewhere:
        return f"there is one in namespace {elsewhere[0]!r}: add `-n {elsewhere[0]}`"
    here = names.get(namespace, [])
    if near := find_near_names(name, here):
        return f"did you mean {' or '.join(near)}?"
    if not here:
        return f"there are no TrainJobs in namespace {namespace!r}"
    return "see `trainwright list`"


def find_near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the known names that look like this one, nearest first.

    Where one is nearly the same, those that are merely like it (`mpi-distributed`, `jax-distributed`) are not
    named.
    """
    import difflib

    known = list(known)
    near = difflib.get_close_matches(name, known, n=_NAMES_SHOWN, cutoff=0.6)
    if near and (best := difflib.SequenceMatcher(None, near[0], name).ratio()) > _NEARLY_THE_SAME:
        cutoff = best - (1 - _NEARLY_THE_SAME)
        near = difflib.get_close_matches(name, near, n=_NAMES_SHOWN, cutoff=cutoff)
    # A job called after its script has random letters at its end, which people leave out.
    started = sorted(other for other in known if name and other.startswith(name) and other not in near)
    return (near + started)[:_NAMES_SHOWN]
