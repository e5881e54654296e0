"""From YAML events to plain values with their places.

Works with a stack of its own, so depth is a number that is checked and not a crash. A duplicate key, a key
that is no text, an unknown tag or alias spoil the document but not the search for further errors in it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from trainwright.api.field_path import Path, Token
from trainwright.api.positions import Place
from trainwright.api.scalars import ScalarError, parse_plain_scalar, parse_tagged_scalar
from trainwright.field_errors import FieldError, Position, Rule

MAX_VALUES: Final = 500_000  # with all aliases expanded; bounds "billion laughs"
MAX_DEPTH: Final = 100
_MAX_ERRORS: Final = 100

_MAPPING_TAGS: Final = frozenset({None, "!", "tag:yaml.org,2002:map"})
_SEQUENCE_TAGS: Final = frozenset({None, "!", "tag:yaml.org,2002:seq"})


class Document(msgspec.Struct, frozen=True):
    """One document: its plain value, where everything in it stands, and what is wrong with it."""

    value: Any
    place: Place | None
    errors: tuple[FieldError, ...] = ()


class TooMuch(Exception):
    """The text is beyond a limit, and reading it stops here."""

    def __init__(self, detail: str, position: Position) -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position


class _Key(msgspec.Struct, gc=False):
    """A key whose value comes next. `name` is None where the value is read but not kept."""

    name: str | None
    line: int
    column: int
    is_merge: bool = False


class _Frame(msgspec.Struct):
    """A mapping or sequence that is still open."""

    value: dict[str, Any] | list[Any]
    place: Place
    anchor: str | None
    is_key: bool = False
    size: int = 1
    key: _Key | None = None
    merges: list[tuple[dict[str, Any], Place]] = msgspec.field(default_factory=list)


class _Anchor(msgspec.Struct):
    """What `&name` names; without a place it is still open, and an alias to it would be endless."""

    value: Any = None
    place: Place | None = None
    size: int = 1


class DocumentBuilder:
    """Takes the events of one stream in order and gives out its documents."""

    def __init__(self, first_line: int = 0) -> None:
        self.errors: list[FieldError] = []
        self._first_line = first_line
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._root: tuple[Any, Place] | None = None
        self._finished_size = 0

    def take(self, event: yaml.Event) -> Document | None:
        """Take the next event; return the document that it ends."""
        match event:
            case yaml.ScalarEvent():
                self._take_scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._take_alias(event)
            case yaml.DocumentStartEvent():
                self._stack, self._anchors, self._root, self.errors = [], {}, None, []
            case yaml.DocumentEndEvent():
                value, place = self._root or (None, None)
                return Document(value, place, tuple(self.errors))
        return None

    # -- events ----------------------------------------------------------------------------------------------

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        line, column = self._at(event)
        if self._expects_key():
            self._take_key(event, line, column)
            return
        value: Any = None
        try:
            if event.tag is not None:
                value = parse_tagged_scalar(event.tag, event.value)
            else:
                value = parse_plain_scalar(event.value) if event.implicit[0] else event.value
        except ScalarError as error:
            self._report(str(error), line, column)
        place = Place(line, column, event.value)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(value, place)
        self._attach(value, place, 1)

    def _take_key(self, event: yaml.ScalarEvent, line: int, column: int) -> None:
        frame = self._stack[-1]
        text = event.value
        is_plain = event.tag is None and event.implicit[0]
        frame.key = _Key(text, line, column)
        if is_plain and text == "<<":
            frame.key = _Key(None, line, column, is_merge=True)
            return
        if is_plain and not isinstance(_meaning(text), str | int):
            self._report(f"the key {text or 'null'} is no text for YAML; put it in quotes", line, column)
        elif is_plain and isinstance(_meaning(text), bool):
            self._report(f"YAML takes the key {text} for a boolean; put it in quotes", line, column)
        elif frame.place.children is not None and text in frame.value:
            first = frame.place.children[text]
            self._report(
                f"the key {text!r} is there already, in line {first.line}", line, column, Rule.DUPLICATE
            )
        else:
            return
        frame.key = _Key(None, line, column)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        line, column = self._at(event)
        is_key = self._expects_key()
        if is_key:
            self._report("a key must be text, not an object or a list", line, column)
        if len(self._stack) >= MAX_DEPTH:
            raise TooMuch(f"values are nested deeper than {MAX_DEPTH} levels", Position(line, column))
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (_MAPPING_TAGS if is_mapping else _SEQUENCE_TAGS):
            self._report(f"the tag {event.tag} is not supported; remove it", line, column)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor()
        place = Place(line, column, None, {})
        self._stack.append(_Frame({} if is_mapping else [], place, event.anchor, is_key))

    def _close(self) -> None:
        frame = self._stack.pop()
        if isinstance(frame.value, dict):
            self._merge(frame)
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(frame.value, frame.place, frame.size)
        if frame.is_key:
            self._stack[-1].key = _Key(None, frame.place.line, frame.place.column)
        else:
            self._attach(frame.value, frame.place, frame.size)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        line, column = self._at(event)
        anchor = self._anchors.get(event.anchor or "")
        if self._expects_key():
            self._report(f"the alias *{event.anchor} cannot be a key; write the key itself", line, column)
            self._stack[-1].key = _Key(None, line, column)
            return
        if anchor is None:
            self._report(f"the alias *{event.anchor} has no anchor &{event.anchor} before it", line, column)
        elif anchor.place is None:
            self._report(f"the alias *{event.anchor} stands inside of what it repeats", line, column)
        else:
            place = Place(line, column, anchor.place.text, anchor.place.children)
            self._attach(anchor.value, place, anchor.size)
            return
        self._attach(None, Place(line, column), 1)

    # -- tree ------------------------------------------------------------------------------------------------

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _attach(self, value: Any, place: Place, size: int) -> None:
        """Put a finished value into what is open around it."""
        if not self._stack:
            self._root = (value, place)
            self._finished_size += size
            return
        frame = self._stack[-1]
        frame.size += size
        if self._finished_size + frame.size > MAX_VALUES:
            detail = f"more than {MAX_VALUES:,} values with all aliases expanded; split the text"
            raise TooMuch(detail, place.position)
        if isinstance(frame.value, list):
            self._remember(frame, len(frame.value), place)
            frame.value.append(value)
            return
        key, frame.key = frame.key, None
        if key is None:
            return
        if key.is_merge:
            self._take_merge(frame, key, value, place)
        elif key.name is not None:
            frame.value[key.name] = value
            self._remember(frame, key.name, Place(key.line, key.column, place.text, place.children))

    def _take_merge(self, frame: _Frame, key: _Key, value: Any, place: Place) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self._report("<< merges an object or a list of objects, nothing else", key.line, key.column)
            return
        places = (
            [(place.children or {})[i] for i in range(len(sources))] if isinstance(value, list) else [place]
        )
        frame.merges.extend(zip(sources, places, strict=True))

    def _merge(self, frame: _Frame) -> None:
        """Add what `<<` brings; the mapping's own keys win, then the earlier source."""
        assert isinstance(frame.value, dict)  # noqa: S101 (narrows the type)
        for source, place in frame.merges:
            for name, value in source.items():
                if name not in frame.value:
                    frame.value[name] = value
                    self._remember(frame, name, (place.children or {})[name])

    @staticmethod
    def _remember(frame: _Frame, token: Token, place: Place) -> None:
        if frame.place.children is not None:
            frame.place.children[token] = place

    def _at(self, event: yaml.Event) -> tuple[int, int]:
        mark: Any = event.start_mark  # events of a parser always have one
        return mark.line + self._first_line + 1, mark.column + 1

    def _report(self, detail: str, line: int, column: int, rule: Rule = Rule.SYNTAX) -> None:
        if len(self.errors) < _MAX_ERRORS:
            path = self._path()
            self.errors.append(
                FieldError(path=path, rule=rule, detail=detail, position=Position(line, column))
            )

    def _path(self) -> str:
        """Return the path of the value that is being read."""
        path: Path | None = None
        for frame in self._stack:
            token: Token | None = len(frame.value) if isinstance(frame.value, list) else None
            if isinstance(frame.value, dict) and frame.key is not None:
                token = frame.key.name
            if token is not None:
                path = Path(path, token)
        return str(path) if path else ""


def _meaning(text: str) -> Any:
    try:
        return parse_plain_scalar(text)
    except ScalarError:
        return None
