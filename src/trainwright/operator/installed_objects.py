"""The kinds of objects that an installation has, and the requests that make and remove them.

More kinds than the operator itself works with: who installs it is an administrator, and not the operator.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trainwright.api.meta import Json
from trainwright.cluster.kube.requests import APPLY_PATCH, MERGE_PATCH, Request
from trainwright.cluster.kube.resources import RESOURCES, Resource
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import NotFound
from trainwright.manifests.names import MANAGED_BY, MANAGED_BY_LABEL
from trainwright.operator.followed_object import Place

FIELD_MANAGER: Final = "trainwright-install"

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_MORE: Final = (
    Resource("ServiceAccount", "v1", "serviceaccounts"),
    Resource("Deployment", "apps/v1", "deployments"),
    Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    Resource("Role", _RBAC, "roles"),
    Resource("RoleBinding", _RBAC, "rolebindings"),
    Resource("ClusterRole", _RBAC, "clusterroles", namespaced=False),
    Resource("ClusterRoleBinding", _RBAC, "clusterrolebindings", namespaced=False),
    Resource("MutatingWebhookConfiguration", _ADMISSION, "mutatingwebhookconfigurations", namespaced=False),
    Resource(
        "ValidatingWebhookConfiguration", _ADMISSION, "validatingwebhookconfigurations", namespaced=False
    ),
    # Only counted, to see whether a namespace is empty.
    Resource("StatefulSet", "apps/v1", "statefulsets"),
    Resource("DaemonSet", "apps/v1", "daemonsets"),
)
KINDS: Final[dict[str, Resource]] = RESOURCES | {resource.kind: resource for resource in _MORE}

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder()


def build_place(kind: str, name: str, namespace: str = "") -> Place:
    """Return where an object of one of the kinds stands."""
    return Place(resource=KINDS[kind], name=name, namespace=namespace)


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
        return _decode(await transport.request(Request(method="GET", path=place.path)))
    except NotFound:
        return None


async def list_objects(
    transport: Transport, kind: str, *, namespace: str = "", fields: str = "", labels: str = ""
) -> list[Json]:
    """Return the objects of a kind, of all namespaces where none is given; none of an unknown kind."""
    query = [("limit", "500")]
    query += [("fieldSelector", fields)] if fields else []
    query += [("labelSelector", labels)] if labels else []
    path = Place(resource=KINDS[kind], name="", namespace=namespace).collection
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


async def apply_object(transport: Transport, obj: Json) -> Json:
    """Server-side apply; what others own of the object (the CA, certificates) stays theirs."""
    request = Request(
        method="PATCH",
        path=find_place(obj).path,
        query=(("fieldManager", FIELD_MANAGER), ("force", "true")),
        body=_ENCODER.encode(obj),
        content_type=APPLY_PATCH,
    )
    return _decode(await transport.request(request))


async def patch_object(transport: Transport, place: Place, merge: Json) -> None:
    """JSON merge patch."""
    body = _ENCODER.encode(merge)
    await transport.request(
        Request(
            method="PATCH",
            path=place.path,
            query=(("fieldManager", FIELD_MANAGER),),
            body=body,
            content_type=MERGE_PATCH,
        )
    )


async def delete_object(transport: Transport, place: Place) -> bool:
    """Delete an object and what it owns; say whether it was there."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    try:
        await transport.request(Request(method="DELETE", path=place.path, body=_ENCODER.encode(options)))
    except NotFound:
        return False
    return True


def _decode(body: bytes) -> Json:
    decoded: Json = _DECODER.decode(body)
    return decoded
