"""From text to plain values: the syntax of YAML and JSON, nothing about kinds or fields.

Reads libyaml's events instead of its nodes, because only then are all of these possible at once: line and
column of every value, refused duplicate keys, a bound on what aliases expand to, a bound on depth without
recursion, and going on with the next document after a broken one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from trainwright.api.positions import Place
from trainwright.api.yaml_events import MAX_DEPTH, MAX_VALUES, Document, DocumentBuilder, TooMuch
from trainwright.field_errors import FieldError, Position, Rule

MAX_BYTES: Final = 8 * 2**20  # five times what an API server stores of one object

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Documents(msgspec.Struct, frozen=True):
    """All documents of a text that are not empty, and errors that belong to none of them."""

    items: tuple[Document, ...]
    errors: tuple[FieldError, ...] = ()


def parse_documents(text: str | bytes) -> Documents:
    """Return the documents of a YAML or JSON text. Never raises for anything that a text can hold."""
    decoded = _decode(text)
    if isinstance(decoded, FieldError):
        return Documents((), (decoded,))
    if errors := _find_control_characters(decoded):
        return Documents((), tuple(errors))
    if decoded.lstrip()[:1] in {"{", "["}:
        return _parse_json(decoded)
    return _parse_yaml(decoded)


# -- characters ----------------------------------------------------------------------------------------------


def _decode(text: str | bytes) -> str | FieldError:
    if len(text) > MAX_BYTES:
        return _syntax(f"the text is larger than {MAX_BYTES // 2**20} MiB; split it into several files")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    if text[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return _syntax("the text is UTF-16; save it as UTF-8", Position(1, 1))
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8", "replace")
        return _syntax(
            f"the byte 0x{text[error.start]:02x} is not UTF-8; save the file as UTF-8",
            _position_after(before),
        )


# What YAML allows in a text. Everything else would be refused by libyaml with an offset and no line.
_FORBIDDEN: Final = re.compile(r"[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _find_control_characters(text: str) -> list[FieldError]:
    errors = []
    for count, match in enumerate(_FORBIDDEN.finditer(text)):
        if count == 10:
            break
        character = match.group()
        name = "a NUL byte" if character == "\0" else f"the character U+{ord(character):04X}"
        detail = f"{name} is not allowed in YAML or JSON; remove it, or write it as an escape in quotes"
        errors.append(_syntax(detail, _position_after(text[: match.start()])))
    return errors


def _position_after(text: str) -> Position:
    return Position(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)


# -- JSON ----------------------------------------------------------------------------------------------------


class _DuplicateKeys(Exception):
    """JSON with an object that has a key twice; the YAML reader says where."""


class _TooLarge(Exception):
    """JSON with a number that only infinity stands for; no JSON can say that again."""


def _parse_json(text: str) -> Documents:
    """Return the documents of a JSON text, or what YAML's flow style makes of it."""
    try:
        values = list(_decode_json(text))
    except json.JSONDecodeError as error:
        documents = _parse_yaml(text)
        if not documents.errors or not _LOOKS_LIKE_JSON.match(text):
            return documents
        return Documents((), (_syntax(f"invalid JSON: {error.msg}", Position(error.lineno, error.colno)),))
    except _TooLarge as error:
        detail = f"{error} is larger than any number can be; write it in quotes if it is text"
        return Documents((), (_syntax(detail, _position_after(text[: text.index(str(error))])),))
    except (_DuplicateKeys, RecursionError, ValueError):
        return _parse_yaml(text)
    if excess := _measure(values):
        return Documents((), (excess,))
    if _has_lone_surrogates(values):
        detail = "invalid JSON: a \\u escape is half of a character (a lone surrogate); write both halves"
        return Documents((), (_syntax(detail),))
    place = _find_places(text) if len(values) == 1 else None
    return Documents(tuple(Document(value, place) for value in values))


def _has_lone_surrogates(values: list[Any]) -> bool:
    """Say whether a text in here is no Unicode: JSON's escapes can write such, and nothing can send it."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


_SPACE: Final = re.compile(r"[ \t\r\n]*")


def _decode_json(text: str) -> Iterator[Any]:
    """Yield the values of a JSON text; several may follow each other, as `jq` and `kubectl` write them."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_build_unique, parse_constant=_refuse_constant, parse_float=_parse_float
    )
    at = _skip_space(text, 0)
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        yield value
        at = _skip_space(text, end)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


_LOOKS_LIKE_JSON: Final = re.compile(r'\s*[\[{]\s*(["}\]\[{]|$)')


def _build_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        raise _DuplicateKeys
    return built


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _TooLarge(text)
    return number


def _find_places(text: str) -> Place | None:
    """Return the places of a valid JSON text where YAML reads it too (it dislikes tabs and surrogates)."""
    documents = _parse_yaml(text)
    return documents.items[0].place if len(documents.items) == 1 and not documents.errors else None


def _measure(values: list[Any]) -> FieldError | None:
    """Return an error where values are deeper, or altogether larger, than allowed."""
    level, count = values, len(values)
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        count += len(level)
        if count > MAX_VALUES:
            return _syntax(f"more than {MAX_VALUES:,} values; split the text into several files")
        if not level:
            return None
    return _syntax(f"values are nested deeper than {MAX_DEPTH} levels")


# -- YAML ----------------------------------------------------------------------------------------------------


def _parse_yaml(text: str) -> Documents:
    """Return all documents. After one with broken syntax it goes on at the next line that is `---`."""
    items: list[Document] = []
    errors: list[FieldError] = []
    start, first_line = 0, 0
    while len(errors) < _MAX_BROKEN:
        builder = DocumentBuilder(first_line)
        try:
            for event in yaml.parse(text[start:], Loader=_LOADER):
                document = builder.take(event)
                if document is not None and (document.value is not None or document.errors):
                    items.append(document)
        except yaml.YAMLError as error:
            found = explain_yaml_error(error, first_line)
        except TooMuch as error:
            errors.extend(builder.errors)
            errors.append(_syntax(error.detail, error.position))
            break
        else:
            break
        errors.extend(builder.errors)
        errors.append(found)
        error_line = found.position.line if found.position else first_line + 1
        after = _SEPARATOR.search(text, _line_start(text, max(error_line - 1, first_line + 1)))
        if after is None:
            break
        start, first_line = after.start(), text.count("\n", 0, after.start())
    return Documents(tuple(items), tuple(errors))


_MAX_BROKEN: Final = 20  # documents; each costs another start
_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)


def _line_start(text: str, line: int) -> int:
    """Return the offset of a line (counted from 0), or the end of the text."""
    offset = 0
    for _ in range(line):
        offset = text.find("\n", offset) + 1
        if not offset:
            return len(text)
    return offset


def explain_yaml_error(error: yaml.YAMLError, first_line: int = 0) -> FieldError:
    """Return libyaml's complaint in words that say what to do."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _syntax(f"invalid YAML: {error}".splitlines()[0], Position(first_line + 1, 1))
    mark = error.problem_mark or error.context_mark
    mark_line = mark.line + 1 if mark else 1
    position = Position(mark_line + first_line, mark.column + 1 if mark else 1)
    problem = error.problem or "it cannot be read"
    since = error.context_mark if error.context_mark and error.context_mark.line + 1 != mark_line else None
    context = (
        f" ({error.context}, which began in line {since.line + first_line + 1})"
        if error.context and since
        else ""
    )
    hint = next((f"; {hint}" for words, hint in _HINTS if words in problem), "")
    return _syntax(f"invalid YAML: {problem}{context}{hint}", position)


_HINTS: Final = (
    (
        "cannot start any token",
        "is it a tab? YAML indents with spaces; text that begins with @ ` or % needs quotes",
    ),
    ("tab character", "YAML indents with spaces"),
    ("mapping values are not allowed", "text with ': ' in it needs quotes"),
    ("could not find expected ':'", "is a colon or a quote missing in the line before?"),
    ("did not find expected key", "does the line begin in the same column as the keys before it?"),
    ("did not find expected '-' indicator", "does the line begin in the same column as the items before it?"),
    ("did not find expected ',' or", "is a comma or a closing bracket missing?"),
    ("unexpected end of stream", "is a closing quote or bracket missing?"),
    ("unknown escape character", "use single quotes where no escapes are meant"),
)


def _syntax(detail: str, position: Position | None = None) -> FieldError:
    return FieldError(path="", rule=Rule.SYNTAX, detail=detail, position=position)
