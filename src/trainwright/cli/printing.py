"""Objects as JSON, YAML or names. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trainwright.api.meta import Json
from trainwright.api.writing import build_document


def format_json(value: Any) -> str:
    """Return JSON with two blanks of indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def format_documents(objects: Sequence[Json]) -> str:
    """Return the objects as YAML documents."""
    return "---\n".join(build_document(obj) for obj in objects)


def build_list(objects: Sequence[Json]) -> Json:
    """Return the objects as one object, as an API server does."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def format_name(obj: Json) -> str:
    """Return `trainjob.trainer.kubeflow.org/digits`, the form that names an object without doubt."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = obj["kind"].lower()
    return f"{kind}.{group}/{obj['metadata']['name']}" if group else f"{kind}/{obj['metadata']['name']}"


def encode_line(value: Any) -> str:
    """Return JSON on one line."""
    return msgspec.json.encode(value).decode() + "\n"
