"""Write admitted objects: first what jobs need, then the jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import FIELD_MANAGER, Admitted, AdmittedObject
from trainwright.cli.job_rows import is_finished
from trainwright.cli.targets import Target


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One object that was written. `outcome` is created, updated or unchanged."""

    body: Json
    outcome: str
    notices: tuple[str, ...] = ()


async def apply_admitted(target: Target, admitted: Admitted) -> AsyncIterator[Done]:
    """Write the objects and yield each as it is afterwards; whoever works on jobs is told about them.

    What was admitted as a change of an object is refused, as a Conflict, if that object changed meanwhile.
    """
    for item in sorted(admitted.objects, key=lambda item: item.body["kind"] == TRAIN_JOB):
        if item.gives_way is not None:
            metadata = item.gives_way["metadata"]
            key = ObjectKey(item.gives_way["kind"], metadata.get("namespace") or "", metadata["name"])
            await target.cluster.delete(key, metadata["uid"])
        stored = await target.cluster.apply(_build_request(item), FIELD_MANAGER)
        notices: tuple[str, ...] = ()
        if stored["kind"] == TRAIN_JOB:
            train_job = parse_object(stored, TrainJob)
            if not is_finished(train_job):
                notices = tuple(target.list_notices(train_job, item.runtime)) if item.runtime else ()
                await target.engage(train_job)
        yield Done(body=stored, outcome=_name_outcome(item, stored), notices=notices)


def _build_request(item: AdmittedObject) -> Json:
    if item.old is None:
        return item.body
    precondition = {key: item.old["metadata"][key] for key in ("uid", "resourceVersion")}
    return {**item.body, "metadata": {**item.body["metadata"], **precondition}}


def _name_outcome(item: AdmittedObject, stored: Json) -> str:
    if item.old is None:
        return "created"
    same = item.old["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    return "unchanged" if same else "updated"
