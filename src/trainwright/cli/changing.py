"""Change the spec of a TrainJob that exists, through the same admission as everything else."""

from __future__ import annotations

from typing import Any

from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import admit_update
from trainwright.cli.finding import get_train_job_json
from trainwright.cli.job_rows import get_phase, is_finished
from trainwright.cli.stopping import build_key
from trainwright.cli.targets import Target
from trainwright.cluster.local.merge_patch import merge_patch
from trainwright.errors import Conflict

_ATTEMPTS = 10


async def change_train_job(target: Target, namespace: str, name: str, merge: Json) -> TrainJob:
    """Apply a JSON merge patch to a job and return it as stored.

    What is checked is what is written: where somebody else changes the job in between, it is read and checked
    again. Raises NotFound and InvalidObject, and Conflict where it has finished or is changed all the time.
    """
    conflict: Conflict | None = None
    for _ in range(_ATTEMPTS):
        body = await get_train_job_json(target.cluster, namespace, name)
        old = parse_object(body, TrainJob)
        if is_finished(old):
            raise Conflict(
                f"{name} is {get_phase(old)}, and a finished job never runs again: give the same job another "
                f"name, or delete {name} and start it anew"
            )
        new = parse_object(merge_patch(body, merge), TrainJob)
        await admit_update(target, old, new)
        metadata: dict[str, Any] = {"resourceVersion": old.metadata.resource_version}
        try:
            stored = await target.cluster.patch(build_key(old), {**merge, "metadata": metadata})
        except Conflict as error:
            conflict = error
            continue
        return parse_object(stored, TrainJob)
    raise Conflict(f"TrainJob {name!r} is being changed by others all the time; try again") from conflict
