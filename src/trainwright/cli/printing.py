"""Objects as JSON, YAML or names. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from trainwright.api.meta import Json


def format_json(value: Any) -> str:
    """Return JSON with two blanks of indentation."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def format_yaml(value: Any) -> str:
    """Return one YAML document; texts of several lines as blocks."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1_000_000
    )
    return text


def format_documents(objects: Sequence[Json]) -> str:
    """Return the objects as YAML documents."""
    return "---\n".join(format_yaml(obj) for obj in objects)


def build_list(objects: Sequence[Json]) -> Json:
    """Return the objects as one object, as an API server does."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def format_name(obj: Json) -> str:
    """Return `trainjob.trainer.kubeflow.org/digits`, the form that names an object without doubt."""
    group = obj["apiVersion"].rpartition("/")[0]
    kind = obj["kind"].lower()
    return f"{kind}.{group}/{obj['metadata']['name']}" if group else f"{kind}/{obj['metadata']['name']}"


# Numbers to a reader of YAML 1.2 (every Kubernetes tool) that PyYAML, a writer of 1.1, would leave unquoted.
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\d+|\d+\.\d*|\.\d+)([eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes what readers of either version of YAML take for the same."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text and not text.startswith((" ", "\n")) and " \n" not in text and "\t\n" not in text:
        style = "|"
    elif _NUMBER_ELSEWHERE.fullmatch(text):
        style = "'"
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _represent_text)


def encode_line(value: Any) -> str:
    """Return JSON on one line."""
    return msgspec.json.encode(value).decode() + "\n"
