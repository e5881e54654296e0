"""The objects that an installation has: where they stand, whose they are, and how they are made and removed.

Objects are told apart by their whole place, since one installation has many kinds. Who installs is an
administrator, and not the operator.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.requests import (
    Request,
    build_apply,
    build_delete,
    build_get,
    build_merge_patch,
)
from trainwright.cluster.kube.resources import RESOURCES
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import NotFound
from trainwright.manifests.access import ACCESS_KINDS, ACCESS_NAMES
from trainwright.manifests.names import MANAGED_BY, MANAGED_BY_LABEL
from trainwright.operator.followed_object import Place

FIELD_MANAGER: Final = "trainwright-install"

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def build_place(kind: str, name: str, namespace: str = "") -> Place:
    """Return where an object of one of the kinds stands."""
    return Place(resource=RESOURCES[kind], name=name, namespace=namespace)


def find_place(obj: Json) -> Place:
    """Return where an object stands."""
    metadata = obj["metadata"]
    return build_place(obj["kind"], metadata["name"], metadata.get("namespace", ""))


def is_ours(obj: Json) -> bool:
    """Say whether an object was made by an installation of ours."""
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGED_BY


async def get_object(transport: Transport, place: Place) -> Json | None:
    """Return the object, None where there is none, or no such kind."""
    try:
        return _decode(await transport.request(build_get(_build_key(place))))
    except NotFound:
        return None


async def list_objects(
    transport: Transport, kind: str, *, namespace: str = "", fields: str = "", labels: str = ""
) -> list[Json]:
    """Return the objects of a kind, of all namespaces where none is given; none of an unknown kind."""
    query = [("limit", "500")]
    query += [("fieldSelector", fields)] if fields else []
    query += [("labelSelector", labels)] if labels else []
    path = Place(resource=RESOURCES[kind], name="", namespace=namespace).collection
    found: list[Json] = []
    token = ""
    while True:
        more = [("continue", token)] if token else []
        try:
            page = _decode(await transport.request(Request(method="GET", path=path, query=(*query, *more))))
        except NotFound:
            return []
        found += [{"kind": kind, **item} for item in page.get("items") or ()]
        token = page["metadata"].get("continue", "")
        if not token:
            return found


async def list_access(transport: Transport) -> list[Place]:
    """Return where roles and bindings of ours stand, in all namespaces, bindings first."""
    return [
        find_place(found)
        for kind in ACCESS_KINDS
        for found in await list_objects(transport, kind, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY}")
        if found["metadata"]["name"] in ACCESS_NAMES
    ]


async def apply_object(transport: Transport, obj: Json) -> Json:
    """Server-side apply; what others own of the object (the CA, certificates) stays theirs."""
    return _decode(await transport.request(build_apply(obj, FIELD_MANAGER, force=True)))


async def patch_object(transport: Transport, place: Place, merge: Json) -> None:
    """JSON merge patch."""
    request = build_merge_patch(_build_key(place), merge, field_manager=FIELD_MANAGER)
    await transport.request(request)


async def delete_object(transport: Transport, place: Place) -> bool:
    """Delete an object and what it owns; say whether it was there."""
    try:
        await transport.request(build_delete(_build_key(place)))
    except NotFound:
        return False
    return True


def _build_key(place: Place) -> ObjectKey:
    return ObjectKey(place.resource.kind, place.namespace, place.name)


def _decode(body: bytes) -> Json:
    decoded: Json = _DECODER.decode(body)
    return decoded
