"""Carries out what the JobSet and Job controllers decide about one TrainJob's objects.

`decide_job_set` and `decide_job` are functions; here is the thin shell around them that reads the objects
from the cluster, hands them over and sends what comes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.constants import (
    DELETION_ANNOTATION,
    JOB_SET,
    JOBSET_API_VERSION,
    JOBSET_NAME,
    JOBSET_UID,
    TRAIN_JOB,
)
from trainwright.api.core import Event, ObjectReference
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.cluster.port import Cluster
from trainwright.control.actions import Emit
from trainwright.errors import AlreadyExists, Conflict, NotFound
from trainwright.runner.controllers.actions import (
    Action,
    Create,
    MarkDeleted,
    Patch,
    Remove,
    RequeueAfter,
    WriteStatus,
)
from trainwright.runner.controllers.job import decide_job
from trainwright.runner.controllers.jobset import decide_job_set
from trainwright.runner.controllers.names import SUFFIX_ALPHABET, SUFFIX_LENGTH
from trainwright.runner.controllers.volume_claims import CLAIM_KIND

COMPONENT: Final = "trainwright-runner"

Clock = Callable[[], datetime]


class Round(msgspec.Struct, frozen=True):
    """What one look at the objects came to. `pods` are those of the JobSet as they are afterwards."""

    wrote: bool
    pods: list[Json]
    requeue_after: float | None = None


class Controllers:
    """Runs both controllers for the JobSet of one TrainJob.

    The TrainJob is told by its uid, and each write names the uid of the object that was read: a job that was
    deleted and made anew under its name between two steps belongs to another supervisor.
    """

    def __init__(self, cluster: Cluster, key: ObjectKey, uid: str, clock: Clock) -> None:
        self._cluster = cluster
        self._key = ObjectKey(JOB_SET, key.namespace, key.name)
        self._uid = uid
        self._clock = clock
        self._reported: set[str] = set()

    async def run_once(self) -> Round:
        """Look at the JobSet, its Jobs and pods once, each after what was done about the one before."""
        job_set = await self.get_job_set()
        if job_set is None:
            return Round(wrote=False, pods=[])
        now = self._clock()
        claims = await self._list_claim_names(job_set)
        jobs = await self._list("Job", job_set)
        wrote, pause = await self._perform(decide_job_set(job_set, jobs, now, claims), (job_set, *jobs))
        pods = await self._list("Pod", job_set)
        if wrote:
            jobs = await self._list("Job", job_set)
        for job in jobs:
            acted, wait = await self._perform(decide_job(job, pods, now, new_suffix), (job, *pods))
            wrote, pause = wrote or acted, _earlier(pause, wait)
        return Round(wrote, await self._list("Pod", job_set) if wrote else pods, pause)

    async def get_job_set(self) -> Json | None:
        """Return the TrainJob's JobSet. One of that name which it does not control is somebody else's."""
        try:
            job_set = await self._cluster.get(self._key)
        except NotFound:
            return None
        owners = job_set["metadata"].get("ownerReferences") or ()
        is_own = any(
            ref.get("controller") and (ref["kind"], ref["uid"]) == (TRAIN_JOB, self._uid) for ref in owners
        )
        return job_set if is_own else None

    async def list_children(self, job_set: Json) -> tuple[list[Json], list[Json]]:
        """Return the Jobs and the pods of the JobSet."""
        return await self._list("Job", job_set), await self._list("Pod", job_set)

    async def _list(self, kind: str, job_set: Json) -> list[Json]:
        labels = {JOBSET_NAME: job_set["metadata"]["name"], JOBSET_UID: job_set["metadata"]["uid"]}
        listed = await self._cluster.list(kind, self._key.namespace, labels)
        return [with_deletion_timestamp(obj) for obj in listed.items]

    async def _list_claim_names(self, job_set: Json) -> list[str]:
        if not job_set["spec"].get("volumeClaimPolicies"):
            return []
        labels = {JOBSET_NAME: job_set["metadata"]["name"]}
        listed = await self._cluster.list(CLAIM_KIND, self._key.namespace, labels)
        return [claim["metadata"]["name"] for claim in listed.items]

    async def _perform(self, actions: Iterable[Action], seen: Iterable[Json]) -> tuple[bool, float | None]:
        """Do the actions, which were decided from the objects in `seen`."""
        wrote, pause = False, None
        uids = index_uids(seen)
        for action in actions:
            if isinstance(action, RequeueAfter):
                pause = _earlier(pause, action.seconds)
            elif isinstance(action, Emit):
                await emit(self._cluster, action, self._clock())
            else:
                wrote = await self._write(action, uids) or wrote
        return wrote, pause

    async def _write(
        self, action: Create | Patch | MarkDeleted | Remove | WriteStatus, uids: Mapping[ObjectKey, str]
    ) -> bool:
        """Send one write. An object that went away meanwhile needs none; the next look sees that."""
        try:
            if isinstance(action, Create):
                await self._cluster.create(action.object)
            else:
                await write(self._cluster, action, self._clock(), uids)
        except AlreadyExists as error:
            await self._report_taken_name(str(error))
            return False
        except (NotFound, Conflict):
            return False
        return True

    async def _report_taken_name(self, message: str) -> None:
        job_set = await self.get_job_set()
        if job_set is not None and message not in self._reported:
            self._reported.add(message)
            about = msgspec.convert(job_set["metadata"], ObjectMeta)
            event = Emit(
                about=about, kind=JOB_SET, type="Warning", reason="JobCreationFailed", message=message
            )
            await emit(self._cluster, event, self._clock())


async def write(
    cluster: Cluster,
    action: Patch | MarkDeleted | Remove | WriteStatus,
    now: datetime,
    uids: Mapping[ObjectKey, str],
) -> None:
    """Send one write; `uids` are those of the objects that it was decided from.

    Raises NotFound, or Conflict where another object has that name.
    """
    meant = {"uid": uids[action.key]} if action.key in uids else {}
    match action:
        case Patch():
            metadata = {**action.merge.get("metadata", {}), **meant}
            await cluster.patch(action.key, {**action.merge, "metadata": metadata})
        case MarkDeleted():
            mark = {DELETION_ANNOTATION: now.isoformat()}
            await cluster.patch(action.key, {"metadata": {"annotations": mark, **meant}})
        case Remove():
            await cluster.delete(action.key, action.uid or meant.get("uid"))
        case WriteStatus():
            merge = build_status_merge(action.before, action.status)
            await cluster.patch_status(action.key, {"metadata": meant, "status": merge})


def index_uids(objects: Iterable[Json]) -> dict[ObjectKey, str]:
    """Return the uid of each object by its key."""
    return {
        ObjectKey(obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"]): obj[
            "metadata"
        ]["uid"]
        for obj in objects
    }


async def emit(cluster: Cluster, event: Emit, now: datetime) -> None:
    """Record an event."""
    about = event.about
    await cluster.record_event(
        Event(
            metadata=ObjectMeta(namespace=about.namespace),
            involved_object=ObjectReference(
                kind=event.kind,
                namespace=about.namespace or "",
                name=about.name,
                uid=about.uid or "",
                api_version=JOBSET_API_VERSION if event.kind == JOB_SET else "v1",
            ),
            type=event.type,
            reason=event.reason,
            message=event.message,
            reporting_component=COMPONENT,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
        )
    )


def build_status_merge(before: Json, after: Json) -> Json:
    """Return the JSON merge patch that turns one status into the other: what is gone is null."""
    merge: Json = {}
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        merge[name] = build_status_merge(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
    return merge


def with_deletion_timestamp(obj: Json) -> Json:
    """Return the object as an API server would show it: its deletion mark as `deletionTimestamp`."""
    metadata: Json = obj["metadata"]
    mark = (metadata.get("annotations") or {}).get(DELETION_ANNOTATION)
    return obj if mark is None else {**obj, "metadata": {**metadata, "deletionTimestamp": mark}}


def new_suffix() -> str:
    """Return the random end of a pod's name."""
    return "".join(random.choices(SUFFIX_ALPHABET, k=SUFFIX_LENGTH))  # noqa: S311 (a name, not a secret)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)
