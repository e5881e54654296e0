"""The runtime as it was when a job began: how it is stored, found, checked and swept.

A runtime may be edited or deleted at any time; a job that was submitted goes on with the one that it was
submitted with. Snapshots are content-addressed: one immutable ConfigMap `trainer-runtime-<hash>` per
namespace and distinct content, shared by all jobs that use it, so a queue of 50,000 jobs costs one. The
peer keeps one ConfigMap per job, `<trainjob>-runtime-snapshot`; that form is read where it exists and
never written. Nothing here touches a store: the caller looks names up and hands objects in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from trainwright.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME,
    GROUP,
    PEER_SNAPSHOT_SUFFIX,
    SNAPSHOT_KEY,
    SNAPSHOT_NAME_PREFIX,
    TRAINING_RUNTIME,
)
from trainwright.api.core import ConfigMap
from trainwright.api.documents import parse_documents
from trainwright.api.encoding import build_json, encode_canonical
from trainwright.api.meta import Json, ObjectMeta, is_controlled_by
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import RuntimeSnapshotRef, TrainJob
from trainwright.template.shape import find_shape_errors

# On every snapshot that we write, so that a controller watches these ConfigMaps and no others.
SNAPSHOT_LABEL: Final = "trainer.kubeflow.org/runtime-snapshot"

# A snapshot younger than this is never swept: the job that it was written for may not name it yet.
MIN_AGE_TO_SWEEP: Final = timedelta(minutes=10)

_HASH_DIGITS: Final = 32  # 128 bits
_SHOWN_ERRORS: Final = 3  # of a snapshot that somebody edited
_KINDS: Final[dict[str, type[TrainingRuntime] | type[ClusterTrainingRuntime]]] = {
    TRAINING_RUNTIME: TrainingRuntime,
    CLUSTER_TRAINING_RUNTIME: ClusterTrainingRuntime,
}


class FoundSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a look for the snapshot of a job gave: a runtime, or a problem, or neither (there is none)."""

    runtime: Runtime | None = None
    problem: str | None = None


class UnusableSnapshot(Exception):
    """A snapshot exists but does not say which runtime the job began with."""


def find_snapshot(
    job: TrainJob, runtime: Runtime | None, lookup: Callable[[str], Json | None]
) -> FoundSnapshot:
    """Return the snapshot of the job: the first that exists of the names that it may have.

    `lookup` returns the ConfigMap of that name in the job's namespace, or None.
    """
    for name in list_snapshot_names(job, runtime):
        config_map = lookup(name)
        if config_map is None:
            continue
        try:
            return FoundSnapshot(runtime=parse_snapshot(config_map, job))
        except UnusableSnapshot as problem:
            return FoundSnapshot(problem=str(problem))
    return FoundSnapshot()


def list_snapshot_names(job: TrainJob, runtime: Runtime | None) -> list[str]:
    """Return the names under which the snapshot of the job may be, in the order to look.

    A job that names its snapshot has that one or the peer's form; the snapshot of the live runtime counts
    only for a job that names none yet.
    """
    named = _get_named_hash(job)
    names = [SNAPSHOT_NAME_PREFIX + named] if named else []
    names.append(job.metadata.name + PEER_SNAPSHOT_SUFFIX)
    if not named and runtime is not None:
        names.append(SNAPSHOT_NAME_PREFIX + hash_runtime(runtime))
    return names


def build_snapshot(runtime: Runtime, namespace: str) -> Json:
    """Return the immutable ConfigMap that holds the runtime, for jobs of this namespace."""
    text = _encode_content(runtime)
    metadata: Json = {
        "name": SNAPSHOT_NAME_PREFIX + _hash_text(text),
        "labels": {SNAPSHOT_LABEL: "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {SNAPSHOT_KEY: text},
        "immutable": True,
    }


def hash_runtime(runtime: Runtime) -> str:
    """Return the hash of what a snapshot keeps: apiVersion, kind, name, labels, annotations and spec."""
    return _hash_text(_encode_content(runtime))


def build_snapshot_ref(runtime: Runtime, live: Runtime | None) -> RuntimeSnapshotRef:
    """Return what the status says about the runtime of the job.

    The snapshot keeps neither uid nor generation (they differ between namespaces and edits that change
    nothing); they come from the live runtime where its content is the same.
    """
    digest = hash_runtime(runtime)
    meta = runtime.metadata
    if meta.uid is None and live is not None and (live is runtime or hash_runtime(live) == digest):
        meta = live.metadata
    return RuntimeSnapshotRef(
        name=runtime.metadata.name, uid=meta.uid, generation=meta.generation, hash=digest
    )


def parse_snapshot(config_map: Json, job: TrainJob) -> Runtime:
    """Return the runtime in a snapshot of either form.

    Raises UnusableSnapshot where the peer's form is not owned by this job or not what the job began with, the
    content of ours does not fit its name, the text cannot be read, or another runtime is in it than the job
    names.
    Source: spec 01, section 4.2, reading.
    """
    try:
        parsed = msgspec.convert(config_map, ConfigMap)
    except msgspec.ValidationError as error:
        raise UnusableSnapshot(f"the ConfigMap cannot be read: {error}") from error
    name = parsed.metadata.name
    text = (parsed.data or {}).get(SNAPSHOT_KEY)
    if text is None:
        raise UnusableSnapshot(f"ConfigMap {name!r} has no key {SNAPSHOT_KEY!r}")
    if name.startswith(SNAPSHOT_NAME_PREFIX):
        if name != SNAPSHOT_NAME_PREFIX + _hash_text(text):
            raise UnusableSnapshot(f"ConfigMap {name!r} was changed: its content does not fit its name")
        return _parse_content(_parse_json(text), name, job)
    if not is_controlled_by(parsed.metadata, job.metadata):
        raise UnusableSnapshot(f"ConfigMap {name!r} is not owned by this TrainJob")
    runtime = _parse_content(_parse_text(text, name), name, job)
    _check_edited(runtime, name, job)
    return runtime


def find_unused_snapshots(
    config_maps: Iterable[ConfigMap], jobs: Iterable[TrainJob], now: datetime
) -> list[ConfigMap]:
    """Return those snapshots that no TrainJob of their namespace names, in the order given.

    Kept are also those that are young, and those of a runtime that an unfinished job uses which names no
    snapshot yet: it may be about to name this one.
    """
    named: set[tuple[str, str]] = set()
    undecided: set[tuple[str, str, str]] = set()
    for job in jobs:
        namespace = job.metadata.namespace or ""
        if digest := _get_named_hash(job):
            named.add((namespace, SNAPSHOT_NAME_PREFIX + digest))
        elif job.spec is not None:
            ref = job.spec.runtime_ref
            undecided.add((namespace, ref.kind or CLUSTER_TRAINING_RUNTIME, ref.name))
    return [
        config_map
        for config_map in config_maps
        if _is_ours(config_map)
        and (config_map.metadata.namespace or "", config_map.metadata.name) not in named
        and _is_old(config_map, now)
        and _find_runtime_key(config_map) not in undecided
    ]


def _get_named_hash(job: TrainJob) -> str | None:
    ref = job.status.runtime_snapshot if job.status else None
    return ref.hash if ref and ref.hash else None


def _encode_content(runtime: Runtime) -> str:
    meta = runtime.metadata
    content = {
        "apiVersion": API_VERSION,
        "kind": runtime.kind,
        "metadata": build_json(
            ObjectMeta(name=meta.name, labels=meta.labels or None, annotations=meta.annotations or None)
        ),
        "spec": build_json(runtime.spec) if runtime.spec is not None else {},
    }
    return encode_canonical(content).decode()


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def _parse_content(body: Any, name: str, job: TrainJob) -> Runtime:
    if not isinstance(body, dict):
        raise UnusableSnapshot(f"ConfigMap {name!r} holds no runtime")
    ref = job.spec.runtime_ref if job.spec else None
    api_version, kind = body.get("apiVersion"), body.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS or str(api_version).partition("/")[0] != GROUP:
        raise UnusableSnapshot(f"ConfigMap {name!r} holds no runtime but {api_version} {kind}")
    try:
        runtime: Runtime = msgspec.convert(body, _KINDS[kind])
    except msgspec.ValidationError as error:
        raise UnusableSnapshot(f"ConfigMap {name!r} holds a runtime that cannot be read: {error}") from error
    if ref is not None and (
        runtime.metadata.name != ref.name or kind != (ref.kind or CLUSTER_TRAINING_RUNTIME)
    ):
        wanted = f"{ref.kind or CLUSTER_TRAINING_RUNTIME} {ref.name!r}"
        found = f"{kind} {runtime.metadata.name!r}"
        raise UnusableSnapshot(f"ConfigMap {name!r} holds {found}, the TrainJob names {wanted}")
    return runtime


def _check_edited(runtime: Runtime, name: str, job: TrainJob) -> None:
    """Refuse what only a snapshot that anybody may edit can be: not as a runtime looks, or another one.

    A job that has a hash in its status was made from that content; no edit of a ConfigMap may change it.
    """
    template = runtime.spec.template if runtime.spec else None
    spec = template.spec if template else None
    if spec and spec.get("replicatedJobs") and (errors := find_shape_errors(spec)):
        told = "; ".join(map(str, errors[:_SHOWN_ERRORS]))
        raise UnusableSnapshot(f"ConfigMap {name!r} holds a runtime that cannot be read: {told}")
    named = _get_named_hash(job)
    if named is not None and hash_runtime(runtime) != named:
        raise UnusableSnapshot(f"ConfigMap {name!r} was changed since the job began: its hash is not {named}")


def _parse_text(text: str, name: str) -> Any:
    """Return what the text of the peer's form says, which is YAML.

    Whoever may write ConfigMaps may write it, so depth and size have bounds: a few lines of YAML can stand
    for gigabytes.
    """
    documents = parse_documents(text)
    errors = [*documents.errors, *(error for item in documents.items for error in item.errors)]
    if errors:
        raise UnusableSnapshot(f"ConfigMap {name!r} holds no YAML: {errors[0]}")
    return documents.items[0].value if len(documents.items) == 1 else None


def _parse_json(text: str) -> Any:
    """Return what the text of our form says; None where it is no JSON, as where somebody else wrote it."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_ours(config_map: ConfigMap) -> bool:
    return config_map.metadata.name.startswith(SNAPSHOT_NAME_PREFIX) and SNAPSHOT_LABEL in (
        config_map.metadata.labels or {}
    )


def _is_old(config_map: ConfigMap, now: datetime) -> bool:
    created = config_map.metadata.creation_timestamp
    return created is not None and now - created >= MIN_AGE_TO_SWEEP


def _find_runtime_key(config_map: ConfigMap) -> tuple[str, str, str] | None:
    """Return of which runtime a snapshot is; None for one that nobody can use."""
    body = _parse_json((config_map.data or {}).get(SNAPSHOT_KEY, ""))
    try:
        kind, name = body["kind"], body["metadata"]["name"]
    except (KeyError, TypeError):
        return None
    if not isinstance(kind, str) or not isinstance(name, str):
        return None
    return (config_map.metadata.namespace or "", kind, name)
