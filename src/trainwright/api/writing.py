"""Objects as YAML for people and pipes.

Plain and stable: fields in the order in which they come, or those in front that people look for first. What
is written here, `api.reading` reads back to the same values, and so does a reader of either version of YAML.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import yaml

from trainwright.api.meta import Json
from trainwright.api.scalars import ScalarError, parse_plain_scalar

_FIRST: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_FIRST_OF_METADATA: Final = ("name", "generateName", "namespace", "labels", "annotations")
_BASE: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc]  # chosen at run time
    """Block style throughout, no aliases, text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (PyYAML's signature)
        """Write equal parts twice: an alias in the output is hard to read and to edit."""
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text and not any(line.endswith((" ", "\t")) for line in text.split("\n")):
        style = "|"
    elif _is_taken_for_something_else(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _is_taken_for_something_else(text: str) -> bool:
    """Say whether other YAML readers take plain text for a number or boolean (`1e3`, `y`)."""
    if text.lower() in {"y", "n"}:
        return True
    return text[:1] in set("0123456789+-.") and not isinstance(_parse(text), str)


def _parse(text: str) -> Any:
    try:
        return parse_plain_scalar(text)
    except ScalarError:
        return None


def build_yaml(objects: Sequence[Json]) -> str:
    """Return the objects as YAML documents, separated by `---`: `apiVersion`, `kind`, `metadata` first."""
    return "---\n".join(build_document(order_fields(body)) for body in objects)


def build_document(value: Any) -> str:
    """Return any plain value as one YAML document, its fields in the order in which they are."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=2**16
    )
    return text


def order_fields(body: Json) -> Json:
    """Return the object with the fields that people look for first in front."""
    ordered = _put_first(body, _FIRST)
    if isinstance(ordered.get("metadata"), dict):
        ordered["metadata"] = _put_first(ordered["metadata"], _FIRST_OF_METADATA)
    return ordered


def _put_first(body: Json, names: Sequence[str]) -> Json:
    front = {name: body[name] for name in names if name in body}
    return front | {name: value for name, value in body.items() if name not in front}
