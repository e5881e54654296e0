"""Between structs and plain JSON. Strict reading of what users write is in `api.reading`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from trainwright.api.meta import Json

T = TypeVar("T")


def build_object(value: msgspec.Struct) -> Json:
    """Return the plain JSON of an object of any kind, `apiVersion` and `kind` first."""
    body: Json = msgspec.to_builtins(value)
    return {"apiVersion": value.api_version, "kind": value.kind, **body}  # type: ignore[attr-defined]


def build_json(value: Any) -> Any:
    """Return the plain JSON of any struct or list of structs."""
    return msgspec.to_builtins(value)


def parse_object(body: Json, kind: type[T]) -> T:
    """Return the object as a struct; fields that the struct does not know are dropped.

    Raises `msgspec.ValidationError` for a wrong type or a missing field.
    """
    return msgspec.convert(body, kind, strict=True)


_ENCODER = msgspec.json.Encoder(order="sorted")


def encode_canonical(value: Any) -> bytes:
    """Return JSON with sorted keys: equal values give equal bytes."""
    return _ENCODER.encode(value)
