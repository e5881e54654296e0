"""Strict reading of what users write: text in, typed objects and all that is wrong out.

A text goes through three steps: syntax (`api.documents`), kind (`api.kinds`), schema (`api.schema`). Every
step reports everything that it finds, with the field's path and, where a text is known, line and column;
nothing that a text can hold raises. What depends on other objects is looked at in `admission`, not here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from trainwright.api.documents import parse_documents
from trainwright.api.encoding import parse_object
from trainwright.api.field_path import Key, Path
from trainwright.api.kinds import AnyKind, Kind, find_kind
from trainwright.api.meta import Json
from trainwright.api.names import explain_config_key, explain_label, explain_subdomain
from trainwright.api.positions import Place, Positions
from trainwright.api.schema import check_object
from trainwright.api.shapes import Findings
from trainwright.api.wording import describe
from trainwright.field_errors import FieldError, Rule

MAX_ERRORS: Final = 100  # of one text; nobody reads more, and a broken megabyte has a million


class ReadObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object without errors: typed, and as JSON with fields that the type does not hold.

    `positions` gives later errors (of admission) their line and column.
    """

    kind: str
    value: AnyKind
    json: Json
    positions: Positions
    source: str

    def locate(self, errors: list[FieldError]) -> list[FieldError]:
        """Return the errors with the line and column of their fields."""
        return self.positions.attach(errors)


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a text holds. Where there are errors, `objects` lacks those that have them."""

    objects: tuple[ReadObject, ...]
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[FieldError, ...] = ()


def read_objects(text: str | bytes, source: str) -> ReadResult:
    """Return the objects of a YAML or JSON text, of one or many documents, lists included.

    `source` names the text in messages of whoever shows them: a file name or `-`.
    """
    documents = parse_documents(text)
    errors = list(documents.errors)
    warnings: list[FieldError] = []
    objects: list[ReadObject] = []
    for document in documents.items:
        if len(errors) > MAX_ERRORS:
            break
        errors.extend(document.errors)
        for body, place in _flatten(document.value, document.place):
            read = _read_object(body, Positions(place), source)
            errors.extend(read.errors)
            warnings.extend(read.warnings)
            if not document.errors:  # else its values are not what was written
                objects.extend(read.objects)
    errors.extend(_find_twins(objects))
    if not errors and not objects:
        errors.append(_error("", Rule.REQUIRED, "holds no object; begin with apiVersion and kind"))
    if len(errors) > MAX_ERRORS:
        detail = f"only the first {MAX_ERRORS} errors are shown"
        errors = [*errors[:MAX_ERRORS], _error("", Rule.TOO_MANY, detail)]
    return ReadResult(objects=tuple(objects), errors=tuple(errors), warnings=tuple(warnings))


def read_object(body: Any, source: str = "") -> ReadResult:
    """Return the object of plain JSON, checked as strictly as one from a text."""
    return _read_object(body, Positions(), source)


def _flatten(value: Any, place: Place | None) -> list[tuple[Any, Place | None]]:
    """Return the objects of a document: itself, or the items of a list of objects."""
    items, inner = value, place
    if isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list):
        items, inner = value["items"], (place.children or {}).get("items") if place else None
    if not isinstance(items, list):
        return [(value, place)]
    places = (inner.children or {}) if inner else {}
    return [(item, places.get(i)) for i, item in enumerate(items)]


def _read_object(body: Any, positions: Positions, source: str) -> ReadResult:
    if not isinstance(body, dict):
        detail = f"expected an object with apiVersion and kind, found {describe(body)}"
        return ReadResult(objects=(), errors=tuple(positions.attach([_error("", Rule.TYPE, detail)])))
    kind = find_kind(body)
    if not isinstance(kind, Kind):
        return ReadResult(objects=(), errors=tuple(positions.attach(kind)))
    findings = Findings(positions.find_text)
    stored = check_object(kind.struct, body, findings)
    _check_metadata(kind, stored, findings)
    if kind.name in {"ConfigMap", "Secret"}:
        stored = _check_contents(stored, findings)
    errors = tuple(sorted(positions.attach(findings.errors), key=_by_position))
    warnings = tuple(positions.attach(findings.warnings))
    if errors:
        return ReadResult(objects=(), errors=errors, warnings=warnings)
    value = parse_object(stored, kind.struct)
    read = ReadObject(kind=kind.name, value=value, json=stored, positions=positions, source=source)
    return ReadResult(objects=(read,), warnings=warnings)


def _by_position(error: FieldError) -> tuple[int, int]:
    return (error.position.line, error.position.column) if error.position else (0, 0)


def _check_metadata(kind: Kind, stored: Json, findings: Findings) -> None:
    """Check what holds for every object; the names of our own kinds are up to admission."""
    metadata = stored.get("metadata")
    if not isinstance(metadata, dict):
        return
    name, namespace, prefix = (metadata.get(field) for field in ("name", "namespace", "generateName"))
    if not name and not prefix:
        findings.report(Path(_METADATA, "name"), Rule.REQUIRED, "required; give the object a name")
    if isinstance(name, str) and name and not kind.is_ours and (problem := explain_subdomain(name)):
        findings.report(Path(_METADATA, "name"), Rule.INVALID, problem, name)
    if isinstance(namespace, str) and namespace:
        if not kind.is_namespaced:
            detail = f"a {kind.name} belongs to no namespace; remove the field"
            findings.report(Path(_METADATA, "namespace"), Rule.FORBIDDEN, detail, namespace)
        elif problem := explain_label(namespace):
            findings.report(Path(_METADATA, "namespace"), Rule.INVALID, problem, namespace)


_METADATA: Final = Path(None, "metadata")


def _check_contents(stored: Json, findings: Findings) -> Json:
    """Return a ConfigMap or Secret with `stringData` folded into `data`, as an API server stores it."""
    encoded_field = "data" if stored["kind"] == "Secret" else "binaryData"
    taken: dict[str, str] = {}
    for field in ("data", "binaryData", "stringData"):
        contents = stored.get(field)
        for key, content in contents.items() if isinstance(contents, dict) else ():
            place = Path(Path(None, field), Key(key))
            if problem := explain_config_key(key):
                findings.report(place, Rule.INVALID, problem, key)
            if field == "binaryData" and key in taken:
                findings.report(place, Rule.DUPLICATE, f"{key} is in {taken[key]} already", key)
            taken[key] = field
            if field == encoded_field and isinstance(content, str) and not _is_base64(content):
                findings.report(place, Rule.INVALID, "is no base64; plain text belongs into " + _PLAIN[field])
    plain = stored.get("stringData")
    if stored["kind"] != "Secret" or not isinstance(plain, dict) or findings.errors:
        return stored
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
    rest = {field: value for field, value in stored.items() if field != "stringData"}
    return rest | {"data": stored.get("data", {}) | encoded}


_PLAIN: Final = {"data": "stringData", "binaryData": "data"}


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _find_twins(objects: list[ReadObject]) -> list[FieldError]:
    """Return an error for each object that a text holds a second time."""
    errors: list[FieldError] = []
    seen: dict[tuple[str, str, str], ReadObject] = {}
    for read in objects:
        metadata = read.value.metadata
        if not metadata.name:
            continue
        key = (read.kind, metadata.namespace or "", metadata.name)
        first = seen.setdefault(key, read)
        if first is not read:
            before = first.positions.find("metadata.name")
            where = f" in line {before.line}" if before else ""
            detail = f"{read.kind} {metadata.name} is there already{where}; give one of them another name"
            errors.extend(read.locate([_error("metadata.name", Rule.DUPLICATE, detail)]))
    return errors


def _error(path: str, rule: Rule, detail: str) -> FieldError:
    return FieldError(path=path, rule=rule, detail=detail)
