"""The shapes a value can have, and how each checks one.

A shape's `check` returns the value as it is stored (null fields dropped, 1.0 made 1) and adds all that is
wrong to `Findings`; it never stops at the first error and never raises. Shapes are made from the structs by
`api.schema`, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from trainwright.api.field_path import Key, Path
from trainwright.api.names import explain_label_key, explain_label_value
from trainwright.api.quantity import QuantityError, build_quantity_text, parse_quantity
from trainwright.api.wording import describe, list_choices, shorten, suggest
from trainwright.field_errors import FieldError, Rule

MAX_FINDINGS: Final = 1000  # of one object; bounds the work on a megabyte of nonsense
MAX_SUGGESTIONS: Final = 100


class Findings:
    """What is wrong with an object (errors) or probably not meant (warnings).

    `written` gives back what stands in the text for a path, where a text is known.
    """

    def __init__(self, written: Callable[[str], str | None] = lambda path: None) -> None:  # noqa: ARG005
        self.errors: list[FieldError] = []
        self.warnings: list[FieldError] = []
        self.written = written
        self._unknown = 0

    @property
    def is_full(self) -> bool:
        """Say whether there is no point in looking further."""
        return len(self.errors) >= MAX_FINDINGS

    def count_unknown(self) -> bool:
        """Count an unknown field; say whether to look for what was meant, which takes a while for each."""
        self._unknown += 1
        return self._unknown <= MAX_SUGGESTIONS

    def report(self, path: Path | None, rule: Rule, detail: str, value: Any = None) -> None:
        """Add an error."""
        text = str(path) if path else ""
        self.errors.append(FieldError(path=text, rule=rule, detail=detail, value=value))

    def warn(self, path: Path | None, rule: Rule, detail: str) -> None:
        """Add a warning, unless there are more than anybody reads."""
        if len(self.warnings) < MAX_FINDINGS:
            self.warnings.append(FieldError(path=str(path) if path else "", rule=rule, detail=detail))


class Shape(Protocol):
    """A shape; `article` names it in messages ("a string")."""

    article: str

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Return the value as it is stored; report what is wrong with it."""
        ...

    def fill(self, value: Any) -> Any:
        """Return a value of this shape with defaults where fields are absent."""
        ...


class _Plain:
    """What the shapes without parts have in common."""

    article = "a value"
    expects: str | None = None

    def fill(self, value: Any) -> Any:
        """Return the value: there is nothing in it that could be absent."""
        return value

    def _refuse_type(self, value: Any, path: Path | None, findings: Findings, hint: str = "") -> None:
        wanted = self.expects or self.article
        findings.report(path, Rule.TYPE, f"expected {wanted}, found {describe(value)}{hint}", value)


class StringShape(_Plain):
    """A text, with bounds on its length, a pattern, or a list of all that it can be."""

    article = "a string"

    def __init__(
        self,
        *,
        shortest: int = 0,
        longest: int | None = None,
        pattern: str | None = None,
        values: tuple[str, ...] = (),
    ) -> None:
        self.shortest = shortest
        self.longest = longest
        self.written_pattern = pattern
        # `$` is the end of the text, as for an API server, and not the line break before it.
        self.pattern = re.compile(re.sub(r"\$$", r"\\Z", pattern)) if pattern else None
        self.values = values

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a text."""
        if not isinstance(value, str):
            self._refuse_type(value, path, findings, self._quote_hint(value, path, findings))
        elif self.values and value not in self.values:
            detail = f"{shorten(value)} is not supported; use {list_choices(self.values)}"
            findings.report(path, Rule.NOT_SUPPORTED, detail + suggest(value, self.values), value)
        elif len(value) < self.shortest:
            findings.report(path, Rule.INVALID, "must not be empty", value)
        elif self.longest is not None and len(value) > self.longest:
            detail = f"may have at most {self.longest} characters, has {len(value)}"
            findings.report(path, Rule.TOO_LONG, detail, value)
        elif self.pattern and not self.pattern.search(value):
            wanted = self.expects or f"text that matches {self.written_pattern}"
            findings.report(path, Rule.INVALID, f"expected {wanted}, found {shorten(value)}", value)
        elif problem := _explain_characters(value):
            findings.report(path, Rule.INVALID, problem)
        return value

    @staticmethod
    def _quote_hint(value: Any, path: Path | None, findings: Findings) -> str:
        if isinstance(value, bool | int | float):
            written = findings.written(str(path)) if path else None
            return f'; put it in quotes: "{written or msgspec.json.encode(value).decode()}"'
        return '; write "" for an empty one' if value is None else ""


class IntegerShape(_Plain):
    """A whole number in a range; 2.0 is one, as clients that only know floats send it."""

    article = "a whole number"

    def __init__(self, least: int | None, most: int | None) -> None:
        self.least = least
        self.most = most

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a whole number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "; remove the quotes" if isinstance(value, str) and re.fullmatch("-?[0-9]+", value) else ""
            self._refuse_type(value, path, findings, hint)
        elif self.least is not None and value < self.least:
            findings.report(path, Rule.INVALID, f"must be at least {self.least}, is {value}", value)
        elif self.most is not None and value > self.most:
            findings.report(path, Rule.INVALID, f"must be at most {self.most}, is {value}", value)
        return value


class NumberShape(_Plain):
    """Any number, or any from a least one on."""

    article = "a number"

    def __init__(self, least: float | None = None) -> None:
        self.least = least

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse_type(value, path, findings)
        elif self.least is not None and not value >= self.least:
            findings.report(path, Rule.INVALID, f"must be at least {self.least:g}, is {value}", value)
        return value


class BooleanShape(_Plain):
    """True or false."""

    article = "true or false"

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a boolean."""
        if not isinstance(value, bool):
            quoted = isinstance(value, str) and value.lower() in {"true", "false"}
            self._refuse_type(value, path, findings, "; remove the quotes" if quoted else "")
        return value


class TimeShape(_Plain):
    """A moment as RFC 3339 has it."""

    article = "a time such as 2026-01-31T12:00:00Z"

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a moment."""
        try:
            moment = msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            self._refuse_type(value, path, findings)
        else:
            if moment.tzinfo is None:
                self._refuse_type(value, path, findings, ", which has no time zone; add Z for UTC")
        return value


class QuantityShape(_Plain):
    """An amount: a number, or text such as 500m or 1Gi. Fractions in JSON become text."""

    article = "a quantity such as 2, 500m or 1Gi"

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check an amount."""
        try:
            quantity = parse_quantity(value)
        except QuantityError as error:
            rule = Rule.INVALID if isinstance(value, str) else Rule.TYPE
            findings.report(path, rule, str(error), value)
            return value
        if isinstance(value, float):
            return int(value) if value.is_integer() else build_quantity_text(quantity)
        return value


class AnyShape(_Plain):
    """Whatever JSON there is. Fields that are null are absent, as for an API server."""

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:  # noqa: ARG002 (as all shapes)
        """Return the value without null fields."""
        return drop_nulls(value)


class MapShape(_Plain):
    """An object whose keys users choose."""

    article = "an object"

    def __init__(self, values: Shape, label_syntax: str | None = None) -> None:
        self.values = values
        self.label_syntax = label_syntax  # "keys", or "values" for both

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check an object of any keys."""
        if not isinstance(value, dict):
            self._refuse_type(value, path, findings)
            return value
        stored = {}
        for key, item in value.items():
            if findings.is_full:
                break
            place = Path(path, Key(key))
            stored[key] = self.values.check(item, place, findings)
            if self.label_syntax and (problem := explain_label_key(key)):
                findings.report(place, Rule.INVALID, problem, key)
            if (
                self.label_syntax == "values"
                and isinstance(item, str)
                and (problem := explain_label_value(item))
            ):
                findings.report(place, Rule.INVALID, problem, item)
        return stored


class ListShape(_Plain):
    """A list; `keys` are the fields that tell its items apart, `is_set`: the items themselves differ."""

    article = "a list"

    def __init__(
        self,
        items: Shape,
        *,
        fewest: int = 0,
        most: int | None = None,
        keys: tuple[str, ...] = (),
        is_set: bool = False,
    ) -> None:
        self.items = items
        self.fewest = fewest
        self.most = most
        self.keys = keys
        self.is_set = is_set

    def check(self, value: Any, path: Path | None, findings: Findings) -> Any:
        """Check a list."""
        if not isinstance(value, list):
            hint = "; begin each item with '- '" if isinstance(value, dict) else ""
            self._refuse_type(value, path, findings, hint or _split_hint(value))
            return value
        if self.most is not None and len(value) > self.most:
            findings.report(path, Rule.TOO_MANY, f"may have at most {self.most} items, has {len(value)}")
        if len(value) < self.fewest:
            findings.report(path, Rule.REQUIRED, f"must have at least {self.fewest} item(s)")
        stored = []
        for i, item in enumerate(value):
            if findings.is_full:
                break
            stored.append(self.items.check(item, Path(path, i), findings))
        self._check_unique(stored, path, findings)
        return stored

    def fill(self, value: Any) -> Any:
        """Return the list with defaults in its items."""
        return [self.items.fill(item) for item in value] if isinstance(value, list) else value

    def _check_unique(self, value: list[Any], path: Path | None, findings: Findings) -> None:
        if not self.keys and not self.is_set:
            return
        seen: dict[Any, int] = {}
        for i, item in enumerate(value):
            identity = self._identify(item)
            if identity is None:
                continue
            first = seen.setdefault(identity, i)
            if first != i:
                named = ", ".join(f"{k}: {v}" for k, v in zip(self.keys, identity, strict=False)) or str(item)
                detail = f"{shorten(named)} is there already, at [{first}]"
                findings.report(Path(path, i), Rule.DUPLICATE, detail, item)

    def _identify(self, item: Any) -> Any:
        if self.is_set:
            return item if isinstance(item, str) else None
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in self.keys):
            return None
        return tuple(item[key] for key in self.keys)


def drop_nulls(value: Any) -> Any:
    """Return JSON without null fields; nulls in lists stay."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value]
    return value


def _explain_characters(text: str) -> str | None:
    """Return why a text can neither be passed to a program nor be sent, None if it can."""
    if "\0" in text:
        return "contains a NUL character, which no program can be given; remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half of a character (a lone surrogate); write the whole character"
    return None


def _split_hint(value: Any) -> str:
    if isinstance(value, str) and value:
        words = value.split()
        shown = ", ".join(shorten(word, 20) for word in words[:3]) + (", ..." if len(words) > 3 else "")
        return f"; write [{shown}]"
    return ""
