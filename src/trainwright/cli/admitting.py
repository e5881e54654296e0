"""Put objects through the one admission, with what it needs to know of the target.

What is checked is what would be stored: for an object that exists, the outcome of the change, not the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from trainwright.admission import (
    Verdict,
    default_runtime,
    default_train_job,
    validate_runtime,
    validate_train_job,
)
from trainwright.api.encoding import parse_object
from trainwright.api.kinds import AnyKind
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.reading import ReadObject
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import build_runtime_key
from trainwright.cli.manifests import InvalidManifests, Manifests, Mistake, format_mistake
from trainwright.cli.runtime_lookup import KnownRuntime, list_runtimes
from trainwright.cli.shipped_runtimes import is_shipped
from trainwright.cli.targets import AdmissionSource
from trainwright.cluster.observe import observe
from trainwright.errors import Forbidden, InvalidObject, NotFound
from trainwright.field_errors import FieldError, Rule
from trainwright.plugins import load_frameworks

# Whose fields those are that files set.
FIELD_MANAGER = "trainwright"


class AdmittedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object that may be written. `body` is what the file asks for, `value` what will be stored.

    `old` is the stored object, None where there is none; `gives_way` is a stored runtime of the program that
    the user's replaces. `runtime` is that of a TrainJob.
    """

    source: str
    value: AnyKind
    body: Json
    old: Json | None = None
    gives_way: Json | None = None
    runtime: Runtime | None = None


class Admitted(msgspec.Struct, frozen=True):
    """Objects that may be written, in the order of the files, and warnings, a line each."""

    objects: tuple[AdmittedObject, ...]
    warnings: tuple[str, ...]


async def admit_manifests(target: AdmissionSource, manifests: Manifests, namespace: str) -> Admitted:
    """Return all objects as admitted, or none. Raises InvalidManifests with the mistakes of all files.

    Where something could not be read, a runtime may be missing for that reason: that is not told as well.
    """
    placed = [place_object(item, namespace) for item in manifests.objects]
    in_files = {_build_key(item.value): item.value for item in placed if isinstance(item.value, Runtime)}
    objects: list[AdmittedObject] = []
    warnings = list(manifests.warnings)
    mistakes = list(manifests.mistakes)
    for item in placed:
        admitted, verdict = await _admit(target, item, in_files)
        objects.append(admitted)
        errors = [
            error for error in verdict.errors if not (manifests.mistakes and _is_missing_runtime(error))
        ]
        mistakes += [
            Mistake(item.source, format_mistake(item.source, error)) for error in item.locate(errors)
        ]
        warnings += [f"{item.source}: {warning}" for warning in verdict.warnings]
    if mistakes:
        mistakes.sort(key=lambda mistake: manifests.files.index(mistake.source))
        raise InvalidManifests([mistake.line for mistake in mistakes])
    return Admitted(tuple(objects), tuple(warnings))


def admit_new(train_job: TrainJob, runtime: Runtime, known: Iterable[KnownRuntime]) -> Sequence[str]:
    """Check a job that was made here; return the warnings. Raises InvalidObject."""
    stored = default_train_job(train_job, None, datetime.now(UTC))
    verdict = validate_train_job(
        stored,
        runtime,
        known_runtimes=[entry.key.name for entry in known],
        frameworks=load_frameworks(),
    )
    if verdict.errors:
        raise InvalidObject(verdict.errors)
    return verdict.warnings


async def admit_update(target: AdmissionSource, old: TrainJob, new: TrainJob) -> Sequence[str]:
    """Check a change of a job that exists; return the warnings. Raises InvalidObject.

    A target that admits what is written gives its own verdict when the change is sent: nothing to ask before.
    """
    if target.admits_writes:
        return ()
    verdict, _ = await _check_update(target, old, new)
    if verdict.errors:
        raise InvalidObject(verdict.errors, source=f"TrainJob {old.metadata.name!r}")
    return verdict.warnings


def place_object(item: ReadObject, namespace: str) -> ReadObject:
    """Return the object in the namespace of the command, unless it names one or belongs to none."""
    meta = item.value.metadata
    if isinstance(item.value, ClusterTrainingRuntime) or meta.namespace:
        return item
    body = {**item.json, "metadata": {**item.json["metadata"], "namespace": namespace}}
    value = msgspec.structs.replace(item.value, metadata=msgspec.structs.replace(meta, namespace=namespace))
    return msgspec.structs.replace(item, value=value, json=body)


async def _admit(
    target: AdmissionSource, item: ReadObject, in_files: dict[ObjectKey, Runtime]
) -> tuple[AdmittedObject, Verdict]:
    old = await _find(target, _build_key(item.value))
    admitted = AdmittedObject(source=item.source, value=item.value, body=item.json, old=old)
    if isinstance(item.value, TrainJob):
        return await _admit_train_job(target, admitted, item.value, in_files)
    if isinstance(item.value, Runtime):
        if old is not None and is_shipped(old):
            admitted = msgspec.structs.replace(admitted, old=None, gives_way=old)
        return admitted, validate_runtime(default_runtime(item.value), frameworks=load_frameworks())
    return admitted, Verdict()


async def _admit_train_job(
    target: AdmissionSource, admitted: AdmittedObject, train_job: TrainJob, in_files: dict[ObjectKey, Runtime]
) -> tuple[AdmittedObject, Verdict]:
    replace = msgspec.structs.replace
    admitted = replace(admitted, body=_annotate(target, admitted.body, admitted.old))
    if admitted.old is not None:
        old = parse_object(admitted.old, TrainJob)
        try:
            new = parse_object(await target.preview(admitted.body, FIELD_MANAGER), TrainJob)
        except InvalidObject as error:
            return admitted, Verdict(invalid=error.errors)
        try:
            verdict, runtime = await _check_update(target, old, new)
        except Forbidden:
            if not target.admits_writes:
                raise
            verdict, runtime = Verdict(), None  # what the caller may not see, the target checks itself
        return replace(admitted, value=new, runtime=runtime), verdict
    known = {entry.key: entry for entry in await list_runtimes(target, train_job.metadata.namespace or "")}
    wanted = build_runtime_key(train_job)
    runtime = in_files.get(wanted) or (known[wanted].runtime if wanted in known else None)
    names = sorted({key.name for key in (*known, *in_files) if key.kind == wanted.kind})
    stored = default_train_job(train_job, None, datetime.now(UTC))
    return replace(admitted, runtime=runtime), validate_train_job(
        stored, runtime, known_runtimes=names, frameworks=load_frameworks()
    )


def _annotate(target: AdmissionSource, body: Json, old: Json | None) -> Json:
    """Return the job with the annotations of its target: those it was made with, else those of the caller."""
    asked = body["metadata"].get("annotations") or {}
    made_with = ((old or {}).get("metadata") or {}).get("annotations") or {}
    own = {name: made_with.get(name, value) for name, value in target.build_annotations().items()}
    return {**body, "metadata": {**body["metadata"], "annotations": {**own, **asked}}}


async def _check_update(
    target: AdmissionSource, old: TrainJob, new: TrainJob
) -> tuple[Verdict, Runtime | None]:
    """Return the verdict over a change, and the runtime as the job began with it."""
    now = datetime.now(UTC)
    key = ObjectKey(old.kind, old.metadata.namespace or "", old.metadata.name)
    seen = await observe(target.cluster, key)
    runtime = (seen.snapshot or seen.runtime) if seen else None
    if runtime is None:
        wanted = build_runtime_key(old)
        known = await list_runtimes(target, key.namespace)
        runtime = next((entry.runtime for entry in known if entry.key == wanted), None)
    # An object that was stored before it was defaulted does not change by being defaulted.
    before = default_train_job(old, None, now)
    after = default_train_job(new, before, now)
    verdict = validate_train_job(
        after, runtime, before, seen.job_set if seen else None, frameworks=load_frameworks()
    )
    return verdict, runtime


def _is_missing_runtime(error: FieldError) -> bool:
    return error.rule is Rule.NOT_FOUND and error.path.startswith("spec.runtimeRef")


async def _find(target: AdmissionSource, key: ObjectKey) -> Json | None:
    try:
        return await target.cluster.get(key)
    except NotFound:
        return None


def _build_key(value: AnyKind) -> ObjectKey:
    return ObjectKey(value.kind, value.metadata.namespace or "", value.metadata.name)
