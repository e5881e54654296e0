"""What a kind looks like, compiled from its msgspec struct: the one description of the API.

`compile_shape(TrainJob)` walks the struct once and gives a shape that checks plain JSON (`check_object`) and
fills in the defaults of the schema (`fill_defaults`). Job templates are *open*: from there on down fields
that the structs do not know are kept, and only looked at for spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from trainwright.api import markers
from trainwright.api.field_path import Key, Path
from trainwright.api.meta import Json
from trainwright.api.shapes import (
    AnyShape,
    BooleanShape,
    Findings,
    IntegerShape,
    ListShape,
    MapShape,
    NumberShape,
    QuantityShape,
    Shape,
    StringShape,
    TimeShape,
    drop_nulls,
)
from trainwright.api.wording import describe, suggest
from trainwright.field_errors import Rule

# How like a known name an unknown one must be to be taken for a mistake where it may as well be new.
_MISSPELT: Final = 0.8


class Field(msgspec.Struct, frozen=True):
    """A field of an object. `default` is UNSET where the schema has none."""

    shape: Shape
    is_required: bool
    default: Any = msgspec.UNSET


class ObjectShape:
    """An object with named fields."""

    article = "an object"
    expects: str | None = None

    def __init__(self, kind: type[msgspec.Struct], fields: dict[str, Field], *, is_open: bool) -> None:
        self.kind = kind
        self.fields = fields
        self.is_open = is_open
        self.passed_over: tuple[str, ...] = getattr(kind, "passed_over", ())
        self.ineffective: Mapping[str, str] = getattr(kind, "ineffective", {})
        self.moved: Mapping[str, str] = getattr(kind, "moved", {})
        self.at_most_one: tuple[str, ...] = ()
        self.is_never_empty = False

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check an object."""
        if not isinstance(value, dict):
            findings.report(path, Rule.TYPE, f"expected an object, found {describe(value)}", value)
            return value
        stored: Json = {}
        for name, item in value.items():
            if findings.is_full:
                break
            field = self.fields.get(name)
            if name in self.passed_over:
                continue
            if name in self.ineffective:
                findings.warn(Path(path, name), Rule.UNKNOWN, f"has no effect; {self.ineffective[name]}")
                continue
            if field is None:
                self._take_unknown(name, item, path, stored, findings)
            elif item is not None:
                stored[name] = field.shape.check(item, Path(path, name), findings)
        for name, field in self.fields.items():
            if field.is_required and value.get(name) is None:
                findings.report(Path(path, name), Rule.REQUIRED, f"required; write {_article(field.shape)}")
        self._check_presence(stored, path, findings)
        return stored

    def fill(self, value: Any) -> Any:
        """Return the object with defaults; objects that are absent stay absent, whatever is in them."""
        if not isinstance(value, dict):
            return value
        filled = {
            name: self.fields[name].shape.fill(item) if name in self.fields else item
            for name, item in value.items()
        }
        for name, field in self.fields.items():
            if field.default is not msgspec.UNSET and name not in filled:
                filled[name] = field.default
        return filled

    def _take_unknown(
        self, name: str, item: Any, path: Path | None, stored: Json, findings: Findings
    ) -> None:
        place = Path(path, name if name.replace("-", "").replace("_", "").isalnum() else Key(name))
        is_looked_up = findings.count_unknown()
        if not self.is_open:
            detail = f"unknown field{self._suggest(name) if is_looked_up else ''}"
            findings.report(place, Rule.UNKNOWN, detail, item)
            return
        if item is not None:
            stored[name] = drop_nulls(item)
        if not is_looked_up:
            return
        unused = [known for known in self.fields if known not in stored]
        if hint := suggest(name, unused, likeness=_MISSPELT):
            findings.warn(place, Rule.UNKNOWN, f"unknown to us and passed on{hint}")

    def _suggest(self, name: str) -> str:
        if name in self.moved:
            return f"; {self.moved[name]}"
        if hint := suggest(name, list(self.fields)):
            return hint
        if below := self.find_below(name):
            return f"; did you mean {below}?"
        return f"; known here: {', '.join(self.fields)}" if self.fields else "; nothing can be set here"

    def find_below(self, name: str, depth: int = 3) -> str | None:
        """Return the path from here to a field of this name further in, the shortest one."""
        inner = {
            field: known.shape for field, known in self.fields.items() if isinstance(known.shape, ObjectShape)
        }
        for field, shape in inner.items():
            if name in shape.fields:
                return f"{field}.{name}"
        if depth > 1:
            for field, shape in inner.items():
                if below := shape.find_below(name, depth - 1):
                    return f"{field}.{below}"
        return None

    def _check_presence(self, stored: Json, path: Path | None, findings: Findings) -> None:
        chosen = [name for name in self.at_most_one if name in stored]
        if len(chosen) > 1:
            detail = (
                f"{' and '.join(chosen)} are set; at most one of {', '.join(self.at_most_one[:8])} may be"
            )
            findings.report(path, Rule.INVALID, detail)
        if self.is_never_empty and not stored:
            findings.report(path, Rule.INVALID, "must not be empty; leave it out or set a field")


@cache
def compile_shape(kind: type[msgspec.Struct], *, is_open: bool = False) -> ObjectShape:
    """Return the shape of a struct; `is_open` where it is part of something open."""
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)  # noqa: S101 (narrows the type)
    return _compile_struct(info, is_open)


def check_object(kind: type[msgspec.Struct], body: Any, findings: Findings) -> Json:
    """Return the object as it is stored; report everything that its schema does not allow."""
    stored: Json = compile_shape(kind).check(body, None, findings)
    return stored


def fill_defaults(kind: type[msgspec.Struct], body: Json) -> Json:
    """Return the object with the defaults of its schema in absent fields."""
    filled: Json = compile_shape(kind).fill(body)
    return filled


def _compile(info: mi.Type, is_open: bool) -> tuple[Shape, Json]:
    """Return the shape of a type and its annotations, those of CRDs and ours, in one dictionary."""
    info, notes = unwrap(info)
    shape = _compile_bare(info, notes, is_open)
    if markers.EXPECTS in notes:
        shape.expects = notes[markers.EXPECTS]
    return shape, notes


def _compile_bare(info: mi.Type, notes: Json, is_open: bool) -> Any:
    if markers.SHAPE in notes:
        return _annotate(compile_shape(notes[markers.SHAPE], is_open=is_open), notes)
    if markers.QUANTITY in notes:
        return QuantityShape()
    match info:
        case mi.StructType():
            return _annotate(_compile_struct(info, is_open), notes)
        case mi.StrType():
            return StringShape(
                shortest=info.min_length or 0,
                longest=info.max_length,
                pattern=info.pattern,
                values=tuple(notes.get("enum", ())),
            )
        case mi.IntType():
            return IntegerShape(info.ge, info.le)
        case mi.FloatType():
            return NumberShape(info.ge)
        case mi.DictType(value_type=value_type):
            if isinstance(value_type, mi.AnyType):
                return _build_any_object()
            return MapShape(_compile(value_type, is_open)[0], notes.get(markers.LABELS))
        case mi.ListType() | mi.VarTupleType():
            return ListShape(
                _compile(info.item_type, is_open)[0],
                fewest=info.min_length or 0,
                most=info.max_length,
                keys=tuple(notes.get(markers.LIST_MAP_KEYS, ())),
                is_set=notes.get(markers.LIST_TYPE) == "set",
            )
    return _SIMPLE[type(info)]()


_SIMPLE: Final[dict[type[mi.Type], type[Any]]] = {
    mi.BoolType: BooleanShape,
    mi.DateTimeType: TimeShape,
    mi.AnyType: AnyShape,
}


class _Anything(msgspec.Struct):
    """An object that we never look into."""


def _build_any_object() -> ObjectShape:
    return ObjectShape(_Anything, {}, is_open=True)


def _compile_struct(info: mi.StructType, is_open: bool) -> ObjectShape:
    is_open = is_open or getattr(info.cls, "keeps_unknown", False)
    fields = {}
    for field in info.fields:
        shape, notes = _compile(field.type, is_open)
        fields[field.encode_name] = Field(shape, field.required, notes.get("default", msgspec.UNSET))
    return ObjectShape(info.cls, fields, is_open=is_open)


def _annotate(compiled: ObjectShape, notes: Json) -> ObjectShape:
    """Return the shape as this one field has it; a compiled shape is shared and stays as it is."""
    shape = ObjectShape(compiled.kind, compiled.fields, is_open=compiled.is_open)
    shape.at_most_one = tuple(notes.get(markers.AT_MOST_ONE, ()))
    shape.is_never_empty = notes.get("minProperties", 0) > 0
    return shape


def unwrap(info: mi.Type) -> tuple[mi.Type, Json]:
    """Return the type without its annotations and without None, and the annotations."""
    notes: Json = {}
    while True:
        match info:
            case mi.Metadata(type=inner, extra_json_schema=keywords, extra=extra):
                notes |= (keywords or {}) | (extra or {})
                info = inner
            case mi.UnionType(types=types) if (
                len(rest := [t for t in types if not isinstance(t, mi.NoneType)]) == 1
            ):
                info = rest[0]
            case _:
                return info, notes


def _article(shape: Shape) -> str:
    return getattr(shape, "expects", None) or shape.article
