"""Requests to an API server as values: method, path, query, body. Building one sends nothing.

Source: Kubernetes API concepts; server-side apply; watch bookmarks and streaming lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.resources import RESOURCES, build_path, find_resource

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
# Merges lists by their keys; the built-in kinds alone know it.
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# Almost all JSON is YAML (see `_encode_as_yaml`); every API server since 1.16 takes it under this name.
APPLY_PATCH = "application/apply-patch+yaml"

PAGE_SIZE = 500
WATCH_TIMEOUT_SECONDS = 290

_DRY_RUN: dict[bool, tuple[tuple[str, str], ...]] = {True: (("dryRun", "All"),), False: ()}
_ENCODER = msgspec.json.Encoder()
# U+007F to U+009F, U+2028, U+2029, U+FEFF, U+FFFE and U+FFFF, in UTF-8.
_NOT_IN_YAML = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `query` is in order; values are not yet percent-encoded."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = JSON

    @property
    def target(self) -> str:
        """Path and encoded query, as on the request line."""
        if not self.query:
            return self.path
        return self.path + "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in self.query)


def build_get(key: ObjectKey) -> Request:
    """Read one object."""
    return Request(method="GET", path=_object_path(key))


def build_list(
    kind: str,
    namespace: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int = PAGE_SIZE,
    continue_token: str = "",
) -> Request:
    """Read a page of a collection; `continue_token` is that of the page before."""
    query = [*_selectors(labels, fields), ("limit", str(limit))]
    if continue_token:
        query.append(("continue", continue_token))
    return Request(method="GET", path=_collection_path(kind, namespace), query=tuple(query))


def build_watch(
    kind: str,
    namespace: str | None,
    resource_version: str,
    *,
    labels: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    timeout_seconds: int = WATCH_TIMEOUT_SECONDS,
) -> Request:
    """Watch a collection from a resource version on, with bookmarks."""
    query = [
        *_selectors(labels, fields),
        ("watch", "1"),
        ("resourceVersion", resource_version),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(timeout_seconds)),
    ]
    return Request(method="GET", path=_collection_path(kind, namespace), query=tuple(query))


def build_watch_list(
    kind: str,
    namespace: str | None,
    *,
    labels: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    timeout_seconds: int = WATCH_TIMEOUT_SECONDS,
) -> Request:
    """Watch a collection from now on, its present objects first (streaming list, Kubernetes 1.32+)."""
    query = [
        *_selectors(labels, fields),
        ("watch", "1"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("sendInitialEvents", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(timeout_seconds)),
    ]
    return Request(method="GET", path=_collection_path(kind, namespace), query=tuple(query))


def build_create(obj: Json, *, dry_run: bool = False) -> Request:
    """Create an object; with `dry_run` the server does all but store it."""
    meta = obj.get("metadata", {})
    return Request(
        method="POST",
        path=build_path(find_resource(obj), meta.get("namespace")),
        query=(("fieldValidation", "Strict"), *_DRY_RUN[dry_run]),
        body=_ENCODER.encode(obj),
    )


def build_apply(
    obj: Json, field_manager: str, *, force: bool, subresource: str | None = None, dry_run: bool = False
) -> Request:
    """Server-side apply of an object, or of one of its subresources; `dry_run` as for `build_create`."""
    meta = obj["metadata"]
    return Request(
        method="PATCH",
        path=build_path(find_resource(obj), meta.get("namespace", ""), meta["name"], subresource),
        query=(
            ("fieldManager", field_manager),
            ("force", "true" if force else "false"),
            *_DRY_RUN[dry_run],
        ),
        body=_encode_as_yaml(obj),
        content_type=APPLY_PATCH,
    )


def build_merge_patch(
    key: ObjectKey, merge: Json, *, subresource: str | None = None, field_manager: str = ""
) -> Request:
    """JSON merge patch of an object, or of one of its subresources."""
    return Request(
        method="PATCH",
        path=_object_path(key, subresource),
        query=(("fieldManager", field_manager),) if field_manager else (),
        body=_ENCODER.encode(merge),
        content_type=MERGE_PATCH,
    )


def build_strategic_patch(key: ObjectKey, patch: Json) -> Request:
    """Strategic merge patch: entries are added to the lists that have keys, such as owner references."""
    return Request(
        method="PATCH", path=_object_path(key), body=_ENCODER.encode(patch), content_type=STRATEGIC_PATCH
    )


def build_delete(
    key: ObjectKey,
    uid: str | None = None,
    propagation: str = "Background",
    *,
    grace_period_seconds: int | None = None,
) -> Request:
    """Delete an object; `uid` makes the server refuse an object of another one (409).

    `grace_period_seconds` takes the place of a pod's own; 0 kills it.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return Request(method="DELETE", path=_object_path(key), body=_ENCODER.encode(options))


def build_log(
    key: ObjectKey,
    container: str,
    *,
    follow: bool = False,
    previous: bool = False,
    tail_lines: int | None = None,
    since_time: str = "",
) -> Request:
    """Read a container's log, each line with its time stamp (to resume without loss or duplicates)."""
    query = [("container", container), ("timestamps", "true")]
    if follow:
        query.append(("follow", "true"))
    if previous:
        query.append(("previous", "true"))
    if tail_lines is not None:
        query.append(("tailLines", str(tail_lines)))
    if since_time:
        query.append(("sinceTime", since_time))
    return Request(method="GET", path=_object_path(key, "log"), query=tuple(query))


def find_plural(path: str) -> str:
    """Return the plural of the resource that a path is about, empty for none (`/readyz`).

    `/api/v1/namespaces/a/pods/b/log` is about pods, `/api/v1/namespaces/a` about namespaces.
    """
    parts = path.split("/")
    rest = parts[3:] if path.startswith("/api/") else parts[4:] if path.startswith("/apis/") else []
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return rest[0] if rest else ""


def _encode_as_yaml(obj: Json) -> bytes:
    """Return JSON that means the same as YAML.

    YAML refuses control characters that JSON lets stand (DEL, C1) and folds its own line ends into spaces.
    Source: YAML 1.1, sections 5.1 and 5.4; go-yaml, which API servers use.
    """
    return _NOT_IN_YAML.sub(lambda found: b"\\u%04x" % ord(found[0].decode("utf-8")), _ENCODER.encode(obj))


def _object_path(key: ObjectKey, subresource: str | None = None) -> str:
    return build_path(RESOURCES[key.kind], key.namespace, key.name, subresource)


def _collection_path(kind: str, namespace: str | None) -> str:
    return build_path(RESOURCES[kind], namespace)


def _selectors(labels: Mapping[str, str] | None, fields: Mapping[str, str] | None) -> list[tuple[str, str]]:
    query = []
    if labels:
        query.append(("labelSelector", ",".join(f"{key}={value}" for key, value in sorted(labels.items()))))
    if fields:
        query.append(("fieldSelector", ",".join(f"{key}={value}" for key, value in sorted(fields.items()))))
    return query
