"""From what was decided to the port: actions, one after the other, up to the first that is refused.

A refusal is a value, not an exception: the next decision tells the user. What the port cannot reach is an
exception: nobody can be told through it, so it is for the caller to try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from trainwright.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME,
    CONTROLLER_NAME,
    FIELD_MANAGER,
    JOB_SET,
    JOBSET_API_VERSION,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.core import Event, ObjectReference
from trainwright.api.meta import Json, ObjectKey, ObjectMeta, truncate_to_seconds
from trainwright.api.trainjob import TrainJob, TrainJobStatus
from trainwright.cluster.port import Writer
from trainwright.cluster.secrets import ensure_secret
from trainwright.control.actions import (
    Action,
    Apply,
    Delete,
    Emit,
    EnsureSecret,
    Patch,
    PatchStatus,
    RequeueAfter,
)
from trainwright.control.seen import KIND_NOT_SERVED, Refusal
from trainwright.control.status import find_finished_condition
from trainwright.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InvalidObject,
    KindNotServed,
    MissingPackage,
    NotFound,
    UserError,
)

# What keeps an object from being written, as opposed to a target that is out of reach. The reasons are an
# API server's, but for a package that is missing here, and a kind that the server does not know. A narrower
# error stands before the one that it is a case of.
_REFUSALS: Final[dict[type[UserError], str]] = {
    AlreadyExists: "AlreadyExists",
    Conflict: "Conflict",
    Forbidden: "Forbidden",
    InvalidObject: "Invalid",
    KindNotServed: KIND_NOT_SERVED,
    MissingPackage: "MissingPackage",
    NotFound: "NotFound",
}
_REFUSED: Final = tuple(_REFUSALS)

_API_VERSIONS: Final = {
    CLUSTER_TRAINING_RUNTIME: API_VERSION,
    JOB_SET: JOBSET_API_VERSION,
    "Job": "batch/v1",
    "Pod": "v1",
    TRAIN_JOB: API_VERSION,
    TRAINING_RUNTIME: API_VERSION,
}

# Written by the progress endpoint, with a field manager of its own.
_NOT_OURS: Final = frozenset({"trainerStatus"})


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it went.

    `refusal` is the write that ended the pass. `is_stale` says that the pass ended because the TrainJob is
    not the one any more that was decided about: gone, another of its name, or changed where that matters.
    `requeue_after` is in seconds.
    """

    refusal: Refusal | None = None
    is_stale: bool = False
    requeue_after: float | None = None


async def perform(
    cluster: Writer, actions: Sequence[Action], now: datetime, *, observed: TrainJob | None = None
) -> Outcome:
    """Do the actions in order, and stop at the first that is refused.

    `observed` is the TrainJob that was decided about: its status is not written to a later one of its name.
    A status that the target calls invalid is raised: the status is where refusals are told.
    """
    requeue_after = None
    for action in actions:
        match action:
            case RequeueAfter(seconds=seconds):
                requeue_after = seconds
            case PatchStatus():
                if not await _write_status(cluster, action, observed):
                    return Outcome(is_stale=True)
            case Emit():
                await _emit(cluster, action, now)
            case Apply() | EnsureSecret() | Patch() | Delete():
                try:
                    await _write(cluster, action)
                except _REFUSED as error:
                    return Outcome(refusal=_build_refusal(action, error, now), requeue_after=requeue_after)
    return Outcome(requeue_after=requeue_after)


def build_status_patch(status: TrainJobStatus, observed: TrainJob | None = None) -> Json:
    """Return the merge patch that makes the status exactly this, but for a `trainerStatus`.

    That is the progress endpoint's to write, and is mentioned only where it was observed and has to go.

    It names the uid of the observed job. That would do, but an API server overlooks it in a patch of the
    status of a custom resource. So a verdict, which is final, names the resource version as well: the end of
    a job that was deleted must not end one that was made meanwhile under its name. All other statuses do
    without, so that whoever edits a label in a loop cannot keep them from being written (case B007).
    """
    fields = {name: value for name, value in _with_nulls(status).items() if name not in _NOT_OURS}
    observed_status = observed.status if observed else None
    if observed_status is not None and observed_status.trainer_status is not None:
        fields |= dict.fromkeys(_NOT_OURS) if status.trainer_status is None else {}
    return {**_build_preconditions(status, observed), "status": fields}


def _build_preconditions(status: TrainJobStatus, observed: TrainJob | None) -> Json:
    if observed is None:
        return {}
    is_verdict = find_finished_condition(status) and not find_finished_condition(observed.status)
    preconditions = {
        "uid": observed.metadata.uid,
        "resourceVersion": observed.metadata.resource_version if is_verdict else None,
    }
    return {"metadata": {name: value for name, value in preconditions.items() if value}}


async def _write(cluster: Writer, action: Apply | EnsureSecret | Patch | Delete) -> None:
    match action:
        case EnsureSecret():
            await ensure_secret(cluster, action)
        case Apply(object=obj):
            await cluster.apply(obj, FIELD_MANAGER)
        case Patch(key=key, merge=merge):
            await cluster.patch(key, merge)
        case Delete(key=key, uid=uid):
            try:
                await cluster.delete(key, uid)
            except NotFound:
                pass  # somebody was faster
            except Conflict:
                if uid is None:
                    raise
                # The object that was meant is gone, and another has its name.


async def _write_status(cluster: Writer, action: PatchStatus, observed: TrainJob | None) -> bool:
    """Write the status; say whether the TrainJob was still the one that was observed."""
    try:
        await cluster.patch_status(action.key, build_status_patch(action.status, observed))
    except (NotFound, Conflict):
        return False
    except InvalidObject as error:
        # How an API server answers a patch that names another uid, where it looks at it.
        if any(field_error.path == "metadata.uid" for field_error in error.errors):
            return False
        raise
    return True


async def _emit(cluster: Writer, action: Emit, now: datetime) -> None:
    """Record the event. One that is refused is logged, and keeps nothing else from happening."""
    try:
        await cluster.record_event(build_event(action, now))
    except _REFUSED as error:
        import structlog  # 90 ms of a core, which a launch that is refused nothing does without

        structlog.get_logger().warning(
            "event was refused", reason=action.reason, object=action.about.name, error=str(error)
        )


def build_event(action: Emit, now: datetime) -> Event:
    """Return the core/v1 event: the public SDK shows only those that have a `firstTimestamp`."""
    about = action.about
    moment = truncate_to_seconds(now)
    return Event(
        metadata=ObjectMeta(generate_name=f"{about.name}.", namespace=about.namespace),
        involved_object=ObjectReference(
            api_version=_API_VERSIONS.get(action.kind, ""),
            kind=action.kind,
            namespace=about.namespace or "",
            name=about.name,
            uid=about.uid or "",
        ),
        type=action.type,
        reason=action.reason,
        message=action.message,
        reporting_component=CONTROLLER_NAME,
        first_timestamp=moment,
        last_timestamp=moment,
        count=1,
    )


def _build_refusal(action: Apply | EnsureSecret | Patch | Delete, error: UserError, now: datetime) -> Refusal:
    api_version = ""
    if isinstance(action, Apply | EnsureSecret):
        api_version = action.object["apiVersion"]
        metadata = action.object["metadata"]
        key = ObjectKey(action.object["kind"], metadata.get("namespace", ""), metadata["name"])
    else:
        key = action.key
    reason = next(reason for kind, reason in _REFUSALS.items() if isinstance(error, kind))
    return Refusal(key=key, reason=reason, message=str(error), since=now, api_version=api_version)


def _with_nulls(value: Any) -> Any:
    """Return the struct as JSON in which absent fields are null: in a merge patch that removes them."""
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    present = msgspec.to_builtins(value)
    fields: Json = {}
    for field in msgspec.structs.fields(value):
        if field.encode_name not in present:
            fields[field.encode_name] = None
        else:
            fields[field.encode_name] = _with_nulls(getattr(value, field.name))
    return fields
