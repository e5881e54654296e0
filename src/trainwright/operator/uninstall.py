"""Takes an operator off a cluster: what would go, and its deletion.

Only what carries our label goes, so that nothing of the peer's or of a user's is touched. TrainJobs, runtimes
of users and the CRDs that hold them stay, unless whoever calls asks for their deletion. Deleting again
changes nothing, so whatever interrupts it, the same call goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    LEGACY_FINALIZER,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.transport import Transport
from trainwright.control.snapshot import SNAPSHOT_LABEL
from trainwright.errors import TargetUnreachable
from trainwright.manifests.installation import CRD_KIND, build_installation
from trainwright.manifests.names import DEFAULT_NAMESPACE, LEASE, OPERATOR
from trainwright.manifests.settings import InstallSettings
from trainwright.operator.followed_object import Place, follow_object
from trainwright.operator.install import InstallationIncomplete, Tell
from trainwright.operator.installed_objects import (
    build_place,
    delete_object,
    find_place,
    get_object,
    is_ours,
    list_access,
    list_objects,
    patch_object,
)

GONE_SECONDS: Final = 120.0

# Where other things may live beside the operator: a namespace that holds any of these is kept.
_CONTENT: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "PersistentVolumeClaim",
    "Service",
    "ConfigMap",
    "Secret",
    "Lease",
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
_OF_KUBERNETES: Final = frozenset({"kube-root-ca.crt"})


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """What would be deleted, in order, and what people should know about what stays.

    `train_jobs` are all there are, whether they go or not; `unfinished` of them have not ended.
    """

    places: tuple[Place, ...]
    notices: tuple[str, ...] = ()
    train_jobs: int = 0
    unfinished: int = 0


async def find_namespace(transport: Transport) -> str:
    """Return the namespace that the operator is installed in: where its rights are bound to."""
    binding = await get_object(transport, build_place("ClusterRoleBinding", OPERATOR))
    for subject in (binding or {}).get("subjects") or ():
        if subject.get("kind") == "ServiceAccount" and subject.get("namespace"):
            return str(subject["namespace"])
    return DEFAULT_NAMESPACE


async def plan_removal(transport: Transport, namespace: str, *, delete_jobs: bool) -> Removal:
    """Return what an uninstallation would delete."""
    # Webhooks first, so that no request waits for a server that is gone; what finds the others comes last.
    installed = build_installation(InstallSettings(namespace=namespace), ())
    candidates = [find_place(obj) for obj in installed if obj["kind"] not in (CRD_KIND, "Namespace")]
    # Rights in namespaces that were watched alone are found wherever they are.
    candidates += [place for place in await list_access(transport) if place not in candidates]
    candidates.sort(key=_order)
    places: list[Place] = []
    notices: list[str] = []
    for place in candidates:
        present = await get_object(transport, place)
        if present is None:
            continue
        if is_ours(present):
            places.append(place)
        else:
            notices.append(f"{place} stays: it was not made by Trainwright")
    places += await _list_leases(transport, namespace, has_operator=bool(places))
    runtimes = await list_objects(transport, CLUSTER_TRAINING_RUNTIME)
    jobs = await list_objects(transport, TRAIN_JOB)
    unfinished = sum(1 for job in jobs if not _is_finished(job))
    crds = [find_place(obj) for obj in installed if obj["kind"] == CRD_KIND]
    if delete_jobs:
        places += [
            find_place(found)
            for found in await list_objects(transport, "ConfigMap", labels=f"{SNAPSHOT_LABEL}=true")
        ]
        places += [crd for crd in crds if await get_object(transport, crd) is not None]
    else:
        places += [find_place(runtime) for runtime in runtimes if is_ours(runtime)]
    namespaced = build_place("Namespace", namespace)
    present = await get_object(transport, namespaced)
    if present is not None and is_ours(present):
        others = await _list_others(transport, namespace, places)
        if others:
            notices.append(f"{namespaced} stays: it holds {', '.join(others[:5])}")
        else:
            places.append(namespaced)
    return Removal(places=tuple(places), notices=tuple(notices), train_jobs=len(jobs), unfinished=unfinished)


async def remove(transport: Transport, removal: Removal, tell: Tell) -> None:
    """Delete everything in a plan, and wait until it is gone.

    Raises InstallationIncomplete where something cannot be deleted.
    """
    going: list[Place] = []
    done = 0
    place = None
    try:
        for place in removal.places:
            if place.resource.kind == CRD_KIND:
                await _release_objects(transport, place)
            was_there = await delete_object(transport, place)
            if was_there and place.resource.kind in (CRD_KIND, "Namespace"):
                going.append(place)  # only asked to go: what is in it goes first
                continue
            done += 1
            tell(f"{place} {'deleted' if was_there else 'was gone'}")
        for place in going:
            await _wait_until_gone(transport, place)
            done += 1
            tell(f"{place} deleted")
    except (ApiError, TargetUnreachable) as error:
        rest = f"{done} of {len(removal.places)} objects are deleted"
        raise InstallationIncomplete(
            f"{place}: {error}\n{rest}; run the same command again to go on"
        ) from error


def _order(place: Place) -> int:
    kind = place.resource.kind
    if kind.endswith("WebhookConfiguration"):
        return 0
    if kind == "Deployment":
        return 1
    # Where the operator is installed is read from this one.
    return 3 if kind == "ClusterRoleBinding" and place.name == OPERATOR else 2


async def _list_leases(transport: Transport, namespace: str, *, has_operator: bool) -> list[Place]:
    """Return the lease of our operator, which it made itself, without a label."""
    place = build_place("Lease", LEASE, namespace)
    if not has_operator or await get_object(transport, place) is None:
        return []
    return [place]


def _is_finished(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in conditions
    )


async def _list_others(transport: Transport, namespace: str, going: Iterable[Place]) -> list[str]:
    """Return what is in a namespace besides what goes."""
    known = set(going)
    others: list[str] = []
    for kind in _CONTENT:
        for found in await list_objects(transport, kind, namespace=namespace):
            place = find_place(found)
            if place not in known and place.name not in _OF_KUBERNETES:
                others.append(f"{kind} {place.name}")
    return others


async def _release_objects(transport: Transport, crd: Place) -> None:
    """Take the finalizers of older versions off the objects of a kind, which could not go otherwise."""
    for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME):
        if not crd.name.startswith(f"{kind.lower()}s."):
            continue
        for found in await list_objects(transport, kind):
            finalizers: Sequence[str] = found["metadata"].get("finalizers") or ()
            if LEGACY_FINALIZER in finalizers:
                left = [finalizer for finalizer in finalizers if finalizer != LEGACY_FINALIZER]
                await patch_object(transport, find_place(found), {"metadata": {"finalizers": left}})


async def _wait_until_gone(transport: Transport, place: Place) -> None:
    try:
        async with asyncio.timeout(GONE_SECONDS), aclosing(follow_object(transport, place)) as states:
            async for present in states:
                if present is None:
                    return
    except TimeoutError as error:
        raise TargetUnreachable(
            f"is still there after {GONE_SECONDS:g} s; see its status for what holds it"
        ) from error
