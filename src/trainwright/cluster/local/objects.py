"""What an API server does to any object at its door: check, complete, number. Pure.

Defaulting and validation of the kinds themselves is admission's; here is only what the store needs to be sure
of, and what a real server does to kinds that we do not own (Secrets and ConfigMaps).
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.errors import Conflict, InvalidObject
from trainwright.field_errors import FieldError, Rule

# Kinds without a namespace, among those that may meet a local store. A namespace given with them is ignored.
CLUSTER_SCOPED: Final = frozenset(
    {
        CLUSTER_TRAINING_RUNTIME,
        "CustomResourceDefinition",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "RuntimeClass",
        "StorageClass",
    }
)
DEFAULT_NAMESPACE: Final = "default"

# What the store writes in `metadata`, and takes from nobody.
STORE_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_LIMIT = 253
_FROZEN_WHEN_IMMUTABLE = ("binaryData", "data", "immutable")
_HAS_CONTENT = frozenset({"ConfigMap", "Secret"})


class Precondition(msgspec.Struct, frozen=True, kw_only=True):
    """What an object must still be for a write to happen; None means whatever it is."""

    uid: str | None = None
    resource_version: str | None = None


def normalise_key(key: ObjectKey) -> ObjectKey:
    """Return the key with the namespace that the kind has: none, or `default` where none is given."""
    if key.kind in CLUSTER_SCOPED:
        return ObjectKey(key.kind, "", key.name)
    return key if key.namespace else ObjectKey(key.kind, DEFAULT_NAMESPACE, key.name)


def parse_incoming(obj: Json) -> tuple[ObjectKey, Json]:
    """Return the key of an object that somebody sends, and the object without what is not theirs to say.

    The name in the key is empty where the object has only `generateName`. Left out are `status` and the
    store's own metadata; `stringData` of a Secret is folded into `data`. Raises InvalidObject.
    """
    errors = [
        FieldError(
            path=field, rule=Rule.REQUIRED, detail="must be a text that is not empty", value=obj.get(field)
        )
        for field in ("apiVersion", "kind")
        if not isinstance(obj.get(field), str) or not obj[field]
    ]
    metadata = obj.get("metadata")
    meta = _parse_metadata(metadata, errors)
    if meta is not None and not errors:
        errors.extend(_validate_names(meta))
    if errors or meta is None or not isinstance(metadata, dict):
        raise InvalidObject(errors)
    key = normalise_key(ObjectKey(obj["kind"], meta.namespace or "", meta.name))
    body = {name: value for name, value in obj.items() if name != "status"}
    body["metadata"] = {
        name: value for name, value in metadata.items() if name not in STORE_METADATA and value is not None
    }
    if key.namespace:
        body["metadata"]["namespace"] = key.namespace
    else:
        body["metadata"].pop("namespace", None)
    return key, _fold_string_data(body) if key.kind == "Secret" else body


def parse_precondition(obj: Json) -> Precondition:
    """Return the uid and resource version that an object or patch names in its metadata."""
    metadata = get_metadata(obj)
    return Precondition(
        uid=metadata.get("uid") or None, resource_version=metadata.get("resourceVersion") or None
    )


def check_precondition(wanted: Precondition, key: ObjectKey, metadata: Json) -> None:
    """Raise Conflict where the stored object is not the one that was meant."""
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        raise Conflict(
            f"{key} is another object than the one that was meant (uid {metadata['uid']}, not {wanted.uid}): "
            "it was deleted and made again; read it again"
        )
    if wanted.resource_version is not None and wanted.resource_version != metadata["resourceVersion"]:
        raise Conflict(
            f"{key} was changed by somebody else since it was read (resource version "
            f"{metadata['resourceVersion']}, not {wanted.resource_version}); read it again and repeat the "
            "change"
        )


def build_new(body: Json, key: ObjectKey, uid: str, now: datetime) -> Json:
    """Return the object as it is stored first, without a resource version."""
    metadata = {**body["metadata"], "name": key.name, "uid": uid, "creationTimestamp": format_time(now)}
    if "spec" in body:
        metadata["generation"] = 1
    return {**body, "metadata": metadata}


def build_update(stored: Json, changed: Json) -> Json:
    """Return the changed object with the stored one's identity, and the generation raised if the spec
    differs.

    Raises InvalidObject where the change touches what cannot change.
    """
    old = stored["metadata"]
    metadata = {name: value for name, value in changed["metadata"].items() if name not in STORE_METADATA}
    metadata |= {name: old[name] for name in STORE_METADATA if name in old}
    if "spec" in changed and encode_canonical(changed["spec"]) != encode_canonical(stored.get("spec")):
        metadata["generation"] = old.get("generation", 0) + 1
    updated = {**changed, "metadata": metadata}
    _check_immutable(stored, updated)
    return updated


def get_metadata(obj: Json) -> Json:
    """Return the metadata of an object or patch that nobody has checked yet; empty where it is no map."""
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def with_resource_version(obj: Json, resource_version: int) -> Json:
    """Return the object with this resource version."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(resource_version)}}


def encode_object(obj: Json) -> bytes:
    """Return the object as it is stored: equal objects give equal bytes.

    Raises InvalidObject where it is no JSON.
    """
    try:
        return encode_canonical(obj)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # UnicodeEncodeError is a ValueError; its text would quote the whole value.
        reason = "holds bytes that are no Unicode text" if isinstance(error, UnicodeError) else str(error)
        path = FieldError(path="", rule=Rule.INVALID, detail=f"cannot be written as JSON: {reason}")
        raise InvalidObject([path], source=f"{obj.get('kind')} {obj['metadata'].get('name')!r}") from error


def list_owner_uids(metadata: Json) -> list[str]:
    """Return the uids of the owners, in order."""
    return [reference["uid"] for reference in metadata.get("ownerReferences") or ()]


def format_time(moment: datetime) -> str:
    """Return RFC 3339 in UTC with the second as finest unit, as `metadata.creationTimestamp` has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_metadata(metadata: Any, errors: list[FieldError]) -> ObjectMeta | None:
    if not isinstance(metadata, dict):
        errors.append(FieldError(path="metadata", rule=Rule.REQUIRED, detail="must be a map", value=metadata))
        return None
    try:
        return msgspec.convert({k: v for k, v in metadata.items() if v is not None}, ObjectMeta)
    except msgspec.ValidationError as error:
        detail, _, path = str(error).partition(" - at `$")
        field = f"metadata{path.removesuffix('`')}"
        errors.append(FieldError(path=field, rule=Rule.TYPE, detail=detail))
        return None


def _validate_names(meta: ObjectMeta) -> list[FieldError]:
    if not meta.name and not meta.generate_name:
        detail = "is missing: an object needs a name, or a generateName to make one from"
        return [FieldError(path="metadata.name", rule=Rule.REQUIRED, detail=detail)]
    errors = []
    for field, value in (("name", meta.name), ("namespace", meta.namespace or "")):
        if value and (len(value) > _NAME_LIMIT or not _NAME.fullmatch(value)):
            detail = (
                f"{value[:80]!r} is no name: use at most {_NAME_LIMIT} lower case letters, digits, '-' and "
                "'.', with a letter or digit at both ends"
            )
            errors.append(FieldError(path=f"metadata.{field}", rule=Rule.INVALID, detail=detail, value=value))
    return errors


def _fold_string_data(secret: Json) -> Json:
    """Return the Secret with `stringData` written into `data`, as an API server does; it is never stored."""
    kept = {name: value for name, value in secret.items() if name != "stringData"}
    texts = secret.get("stringData") or {}
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        error = FieldError(path="stringData", rule=Rule.TYPE, detail="must be a map of texts")
        raise InvalidObject([error])
    if not texts:
        return kept
    folded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return {**kept, "data": {**(secret.get("data") or {}), **folded}}


def _check_immutable(stored: Json, updated: Json) -> None:
    if stored["kind"] not in _HAS_CONTENT or stored.get("immutable") is not True:
        return
    errors = [
        FieldError(path=field, rule=Rule.FORBIDDEN, detail="cannot change: the object is immutable")
        for field in _FROZEN_WHEN_IMMUTABLE
        if stored.get(field) != updated.get(field)
    ]
    if errors:
        raise InvalidObject(errors, source=f"{stored['kind']} {stored['metadata']['name']!r}")
