"""What the API says about a field beyond its type, as annotations on the structs.

The structs are the only description of the API: reading checks by them, defaulting takes its defaults from
them, and the CRD schema is made of them. What msgspec can express (lengths, ranges, patterns) is plain
`msgspec.Meta`; the functions here name the rest. Where Kubernetes has a keyword for it, it stands in
`extra_json_schema` exactly as a CRD wants it; what only our checks read stands in `extra`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Meta

AT_MOST_ONE: Final = "at_most_one"
EXPECTS: Final = "expects"
LABELS: Final = "labels"
QUANTITY: Final = "quantity"
SHAPE: Final = "shape"

LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"


def list_map(*keys: str, max_items: int | None = None) -> Meta:
    """Return the mark of a list whose items differ in these fields, in the order users gave them."""
    return Meta(max_length=max_items, extra_json_schema={LIST_TYPE: "map", LIST_MAP_KEYS: list(keys)})


def list_set(min_items: int | None = None, max_items: int | None = None) -> Meta:
    """Return the mark of a list whose items are all different."""
    return Meta(min_length=min_items, max_length=max_items, extra_json_schema={LIST_TYPE: "set"})


def list_atomic(max_items: int | None = None) -> Meta:
    """Return the mark of a list that is replaced as a whole."""
    return Meta(max_length=max_items, extra_json_schema={LIST_TYPE: "atomic"})


def shape(kind: type[msgspec.Struct]) -> Meta:
    """Return the mark of plain JSON that is checked like this struct, and passed on whole."""
    return Meta(extra={SHAPE: kind})


def one_of(*values: str, default: str | None = None) -> Meta:
    """Return the mark of a text that is one of these."""
    return Meta(extra_json_schema={"enum": list(values)} | ({} if default is None else {"default": default}))


def default(value: Any) -> Meta:
    """Return the mark of a field that gets this value where it is absent."""
    return Meta(extra_json_schema={"default": value})


def any_object() -> Meta:
    """Return the mark of an object with whatever fields, none of which is dropped."""
    return Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})


def at_most_one(*fields: str) -> Meta:
    """Return the mark of an object in which at most one of these fields is set."""
    return Meta(extra={AT_MOST_ONE: fields})


def not_empty() -> Meta:
    """Return the mark of an object with at least one field."""
    return Meta(extra_json_schema={"minProperties": 1})


def bounded(**keywords: Any) -> Meta:
    """Return the mark of a value that an API server bounds when it is written, by keywords of a CRD.

    For the status: what is stored there has to stay readable, whatever its bounds were.
    """
    return Meta(extra_json_schema=keywords)


def expects(words: str) -> Meta:
    """Return the mark that says, for messages, what belongs into the field."""
    return Meta(extra={EXPECTS: words})
