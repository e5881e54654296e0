"""Write admitted objects: first what jobs need, then the jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.kinds import AnyKind
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import FIELD_MANAGER, Admitted, AdmittedObject
from trainwright.cli.job_rows import build_runtime_key, is_finished
from trainwright.cli.manifests import InvalidManifests
from trainwright.cli.targets import FieldsOfOthers, Target
from trainwright.errors import InvalidObject


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One object that was written. `outcome` is created, updated or unchanged."""

    body: Json
    outcome: str
    notices: tuple[str, ...] = ()


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """As which field manager files are applied, and whether fields of others are taken over.

    Where nobody but the caller can have set them, as on this machine, they always are.
    """

    manager: str = FIELD_MANAGER
    force: bool = False


async def try_on_target(target: Target, admitted: Admitted, ownership: Ownership) -> None:
    """Let a target that checks what is written itself check all objects before the first one is written.

    A job whose runtime comes with the same files is not tried: there, it would be refused for want of it.
    Raises InvalidManifests with everything that is refused, FieldsOfOthers where somebody else set fields to
    other values.
    """
    if not target.admits_writes:
        return
    coming = {_build_key(item.value) for item in admitted.objects if item.old is None}
    mistakes = []
    for item in _order(admitted):
        if isinstance(item.value, TrainJob) and build_runtime_key(item.value) in coming:
            continue
        try:
            await target.preview(_build_request(target, item), ownership.manager, force=ownership.force)
        except InvalidObject as error:
            mistakes += [f"{item.source}: {line}" for line in str(error).splitlines()]
        except FieldsOfOthers as conflict:
            if not _is_own(ownership, conflict):
                raise _name_file(item, conflict) from conflict
    if mistakes:
        raise InvalidManifests(mistakes)


async def apply_admitted(target: Target, admitted: Admitted, ownership: Ownership) -> AsyncIterator[Done]:
    """Write the objects and yield each as it is afterwards; whoever works on jobs is told about them.

    What was admitted as a change of an object is refused, as a Conflict, if that object changed meanwhile;
    a target that checks what is written itself may merge the two.
    """
    for item in _order(admitted):
        if item.gives_way is not None:
            metadata = item.gives_way["metadata"]
            key = ObjectKey(item.gives_way["kind"], metadata.get("namespace") or "", metadata["name"])
            await target.cluster.delete(key, metadata["uid"])
        stored = await _apply(target, item, ownership)
        notices: tuple[str, ...] = ()
        if stored["kind"] == TRAIN_JOB:
            train_job = parse_object(stored, TrainJob)
            if not is_finished(train_job):
                notices = tuple(target.list_notices(train_job, item.runtime)) if item.runtime else ()
                await target.engage(train_job)
        yield Done(body=stored, outcome=_name_outcome(item, stored), notices=notices)


async def _apply(target: Target, item: AdmittedObject, ownership: Ownership) -> Json:
    body = _build_request(target, item)
    force = ownership.force or not target.admits_writes
    try:
        return await target.cluster.apply(body, ownership.manager, force=force)
    except FieldsOfOthers as conflict:
        if not _is_own(ownership, conflict):
            raise _name_file(item, conflict) from conflict
        return await target.cluster.apply(body, ownership.manager, force=True)


def _name_file(item: AdmittedObject, conflict: FieldsOfOthers) -> FieldsOfOthers:
    remedy = "leave these fields out of the file, or take them over with `--force-conflicts`"
    return FieldsOfOthers(f"{item.source}: {conflict}\n{remedy}", conflict.managers)


def _order(admitted: Admitted) -> list[AdmittedObject]:
    """Return what jobs need before the jobs."""
    return sorted(admitted.objects, key=lambda item: item.body["kind"] == TRAIN_JOB)


def _build_request(target: Target, item: AdmittedObject) -> Json:
    if item.old is None:
        return item.body
    # Where fields have managers, whoever else changed the object meanwhile keeps what is theirs.
    fields = ("uid",) if target.admits_writes else ("uid", "resourceVersion")
    precondition = {key: item.old["metadata"][key] for key in fields}
    return {**item.body, "metadata": {**item.body["metadata"], **precondition}}


def _name_outcome(item: AdmittedObject, stored: Json) -> str:
    if item.old is None:
        return "created"
    return "unchanged" if _keep_wished(item.old) == _keep_wished(stored) else "updated"


def _keep_wished(obj: Json) -> dict[str, Any]:
    """Return an object without what others than its authors write: its status changes all the time."""
    kept = {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
    metadata = obj["metadata"]
    return {**kept, "labels": metadata.get("labels"), "annotations": metadata.get("annotations")}


def _is_own(ownership: Ownership, conflict: FieldsOfOthers) -> bool:
    """Say whether only this program set the fields in conflict, by a verb such as `suspend`.

    A file that is applied afterwards is the later wish of the same hand.
    """
    return ownership.manager == FIELD_MANAGER and conflict.managers == {FIELD_MANAGER}


def _build_key(value: AnyKind) -> ObjectKey:
    namespace = "" if value.kind == CLUSTER_TRAINING_RUNTIME else value.metadata.namespace or ""
    return ObjectKey(value.kind, namespace, value.metadata.name)
