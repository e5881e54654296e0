"""Puts an operator on a cluster: looks first whether it may, applies everything, waits until it is ready.

Applying again changes nothing, so whatever interrupts an installation, the same call goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from trainwright import __version__
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import Conflict, NotFound, TargetUnreachable, UserError
from trainwright.manifests.installation import CRD_KIND
from trainwright.manifests.names import OPERATOR, VERSION_LABEL
from trainwright.manifests.settings import SELECTOR, InstallSettings
from trainwright.operator.followed_object import follow_object
from trainwright.operator.installed_objects import (
    apply_object,
    build_place,
    delete_object,
    find_place,
    get_object,
    is_ours,
    list_access,
    list_objects,
)

ESTABLISH_SECONDS: Final = 60.0
_JOBSET_CRD: Final = "jobsets.jobset.x-k8s.io"

# Hears of every object: what happened to it, in a line.
Tell = Callable[[str], None]


class InstallationRefused(Conflict):
    """Something on the cluster stands in the way; nothing was written."""


class InstallationIncomplete(UserError):
    """Some objects were applied and others were not; applying again goes on."""


async def check_cluster(
    transport: Transport, settings: InstallSettings, objects: Sequence[Json], *, replace: bool
) -> None:
    """Raise InstallationRefused where another operator, or one of another version, would be disturbed.

    So does what an installation needs and does not bring: JobSet, and a namespace of users to watch.
    `replace` allows to take the place of one in the same namespace.
    """
    for deployment in await list_objects(transport, "Deployment", fields=f"metadata.name={OPERATOR}"):
        _check_other(deployment, settings, replace=replace)
    if await get_object(transport, build_place(CRD_KIND, _JOBSET_CRD)) is None:
        raise InstallationRefused(
            "JobSet is not installed on this cluster, and TrainJobs run as JobSets; install JobSet v0.12 or "
            "newer first (https://jobset.sigs.k8s.io/docs/installation)"
        )
    for obj in objects:
        if obj["kind"] not in (CRD_KIND, "Namespace"):
            continue
        present = await get_object(transport, find_place(obj))
        if present is not None and "deletionTimestamp" in present["metadata"]:
            raise InstallationRefused(
                f"{find_place(obj)} is being deleted; wait until it is gone, and try again"
            )
    watched = settings.watch_namespace
    if watched is None or watched == settings.namespace:
        return
    if await get_object(transport, build_place("Namespace", watched)) is None:
        raise InstallationRefused(
            f"namespace {watched}, whose TrainJobs the operator is to run (--watch-namespace), does not "
            f"exist; make it first: kubectl create namespace {watched}"
        )


def _check_other(deployment: Json, settings: InstallSettings, *, replace: bool) -> None:
    namespace = deployment["metadata"]["namespace"]
    version = (deployment["metadata"].get("labels") or {}).get(VERSION_LABEL, "of an unknown version")
    ours = is_ours(deployment)
    who = f"Trainwright {version}" if ours else "another operator for TrainJobs"
    where = f"runs in namespace {namespace} (Deployment {OPERATOR})"
    if namespace != settings.namespace:
        remedy = (
            "trainwright uninstall --apply"
            if ours
            else f"kubectl -n {namespace} delete deployment {OPERATOR}"
        )
        raise InstallationRefused(
            f"{who} {where}, and two would work against each other; install with --namespace {namespace}, or "
            f"remove it first: {remedy} (TrainJobs and their pods stay)"
        )
    if replace or (ours and version == __version__):
        return
    raise InstallationRefused(
        f"{who} {where}; add --replace to put Trainwright {__version__} in its place (TrainJobs go on)"
    )


async def apply_installation(transport: Transport, objects: Sequence[Json], tell: Tell) -> None:
    """Apply the objects in order; a namespace that exists, and runtimes that are not ours, are left alone.

    Raises InstallationIncomplete, with what is there by then, where one of them is refused.
    """
    for done, obj in enumerate(objects):
        try:
            tell(f"{find_place(obj)} {await _apply(transport, obj)}")
        except (ApiError, TargetUnreachable) as error:
            rest = f"{done} of {len(objects)} objects are applied"
            raise InstallationIncomplete(
                f"{find_place(obj)}: {error}\n{rest}; run the same command again to go on, or "
                "`trainwright uninstall --apply` to remove them"
            ) from error


async def remove_other_access(transport: Transport, objects: Sequence[Json], tell: Tell) -> None:
    """Delete the rights that an installation of ours with other settings gave, and that `objects` do not.

    Raises InstallationIncomplete where one cannot be deleted.
    """
    wanted = {find_place(obj) for obj in objects}
    place = None
    try:
        for place in await list_access(transport):
            if place not in wanted and await delete_object(transport, place):
                tell(f"{place} deleted: it belonged to other settings")
    except (ApiError, TargetUnreachable) as error:
        raise InstallationIncomplete(
            f"{place or 'roles and their bindings'}: {error}\nall objects are applied, but rights that other "
            "settings gave may be left; run the same command again"
        ) from error


async def _apply(transport: Transport, obj: Json) -> str:
    place = find_place(obj)
    before = await get_object(transport, place)
    if before is not None and obj["kind"] == "Namespace":
        return "kept"
    if before is not None and obj["kind"] == CLUSTER_TRAINING_RUNTIME and not is_ours(before):
        return "kept: it was not made by Trainwright"
    after = await _retry_while_unknown(transport, obj)
    if obj["kind"] == CRD_KIND:
        await _wait_until_established(transport, obj)
    if before is None:
        return "created"
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return "unchanged" if same else "changed"


async def _retry_while_unknown(transport: Transport, obj: Json) -> Json:
    """Apply an object; a kind that was just made may take a moment to be served."""
    for _ in range(20):
        try:
            return await apply_object(transport, obj)
        except NotFound:
            if obj["kind"] != CLUSTER_TRAINING_RUNTIME:
                raise
            await asyncio.sleep(0.25)
    return await apply_object(transport, obj)


async def _wait_until_established(transport: Transport, crd: Json) -> None:
    place = find_place(crd)
    try:
        async with asyncio.timeout(ESTABLISH_SECONDS), aclosing(follow_object(transport, place)) as states:
            async for present in states:
                if present is not None and _has_condition(present, "Established"):
                    return
    except TimeoutError as error:
        raise TargetUnreachable(f"the API server does not serve {place.name} yet") from error


async def wait_until_ready(transport: Transport, settings: InstallSettings, seconds: float) -> None:
    """Wait until all pods of the operator are ready. Raises TargetUnreachable with what they lack."""
    place = build_place("Deployment", OPERATOR, settings.namespace)
    last: Json | None = None
    try:
        async with asyncio.timeout(seconds), aclosing(follow_object(transport, place)) as states:
            async for last in states:
                if last is not None and _is_ready(last):
                    return
    except TimeoutError as error:
        status = (last or {}).get("status") or {}
        available = status.get("availableReplicas", 0)
        reasons = await _list_reasons(transport, settings.namespace, last)
        detail = f"; {'; '.join(reasons)}" if reasons else ""
        raise TargetUnreachable(
            f"the operator is not ready after {seconds:g} s: {available} of {settings.replicas} pods are "
            f"available{detail}. See `kubectl -n {settings.namespace} describe deployment {OPERATOR}`"
        ) from error


def _is_ready(deployment: Json) -> bool:
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return False
    wanted = deployment["spec"].get("replicas", 1)
    # Also none of the replica set before.
    return all(
        status.get(count, 0) == wanted for count in ("replicas", "updatedReplicas", "availableReplicas")
    )


async def _list_reasons(transport: Transport, namespace: str, deployment: Json | None) -> list[str]:
    """Return why pods are not ready: what the Deployment says, and what containers wait for."""
    if deployment is None:
        return ["its Deployment is gone"]
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    reasons = [
        f"{condition['reason']}: {condition.get('message', '')}"
        for condition in conditions
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True"
    ]
    labels = ",".join(f"{name}={value}" for name, value in SELECTOR.items())
    for pod in await list_objects(transport, "Pod", namespace=namespace, labels=labels):
        status = pod.get("status") or {}
        reasons += [
            f"pod {pod['metadata']['name']}: {condition.get('message', 'not scheduled')}"
            for condition in status.get("conditions") or ()
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                said = f"{waiting.get('reason', '')}: {waiting.get('message', '')}".strip(": ")
                reasons.append(f"pod {pod['metadata']['name']}: {said}")
    return reasons


def _has_condition(obj: Json, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
