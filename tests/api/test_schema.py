"""What a schema made from a struct finds in plain JSON, and the defaults it fills in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Meta

from trainwright.api.field_path import Path
from trainwright.api.markers import (
    at_most_one,
    default,
    expects,
    list_map,
    list_set,
    not_empty,
    one_of,
    shape,
)
from trainwright.api.meta import ApiStruct, Json, Labels, PositiveInt32, QuantityValue
from trainwright.api.pod import PodSpec
from trainwright.api.schema import check_object, compile_shape, fill_defaults
from trainwright.api.shapes import Findings
from trainwright.field_errors import Rule


class Inner(ApiStruct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=5)]
    mode: Annotated[str, one_of("hard", "soft", default="hard")] | None = None


class Loose(ApiStruct, frozen=True, kw_only=True):
    keeps_unknown: ClassVar[bool] = True

    command: list[str] | None = None
    inner: Inner | None = None


class Whole(ApiStruct, frozen=True, kw_only=True):
    passed_over: ClassVar[tuple[str, ...]] = ("managedFields",)

    count: PositiveInt32
    is_on: Annotated[bool, default(False)] | None = None
    ratio: float | None = None
    when: datetime | None = None
    labels: Labels | None = None
    limits: dict[str, QuantityValue] | None = None
    words: Annotated[list[str], list_set(max_items=3)] | None = None
    inners: Annotated[list[Inner], list_map("name")] | None = None
    uri: Annotated[str, Meta(pattern="^[a-z]+://.+$"), expects("a URI such as s3://bucket")] | None = None
    loose: Annotated[Json, shape(Loose)] | None = None
    chosen: Annotated[Loose, at_most_one("command", "inner"), not_empty()] | None = None
    anything: Any = None


def check(**fields: Any) -> tuple[Any, list[tuple[str, Rule, str]]]:
    """Return what is stored of an object, and its errors; `count` is there unless it is given."""
    findings = Findings()
    stored = check_object(Whole, {"count": 1} | fields, findings)
    return stored, [(error.path, error.rule, error.detail) for error in findings.errors]


GOOD: dict[str, tuple[Any, Any]] = {
    "whole number as float": ({"count": 2.0}, {"count": 2}),
    "null is absent": ({"isOn": None, "labels": None}, {"count": 1}),
    "float": ({"ratio": 1}, {"count": 1, "ratio": 1}),
    "time": ({"when": "2026-01-01T00:00:00Z"}, {"count": 1, "when": "2026-01-01T00:00:00Z"}),
    "whole quantity as float": ({"limits": {"cpu": 1.0}}, {"count": 1, "limits": {"cpu": 1}}),
    "fraction as float": ({"limits": {"cpu": 0.5}}, {"count": 1, "limits": {"cpu": "500m"}}),
    "quantity as text": ({"limits": {"cpu": "1.50"}}, {"count": 1, "limits": {"cpu": "1.50"}}),
    "passed over": ({"managedFields": [1]}, {"count": 1}),
    "unknown fields of an open object": (
        {"loose": {"new": {"a": None, "b": [None, 1]}, "inner": {"name": "x", "other": 1}}},
        {"count": 1, "loose": {"new": {"b": [None, 1]}, "inner": {"name": "x", "other": 1}}},
    ),
    "anything": ({"anything": {"a": None, "b": 1}}, {"count": 1, "anything": {"b": 1}}),
}


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_a_good_object_is_stored_in_its_normal_form(case: tuple[Any, Any]) -> None:
    given, stored = case

    assert check(**given) == (stored, [])


BAD: dict[str, tuple[Any, list[tuple[str, Rule, str]]]] = {
    "missing": ({"count": None}, [("count", Rule.REQUIRED, "required; write a whole number")]),
    "text for a number": (
        {"count": "2"},
        [("count", Rule.TYPE, 'expected a whole number, found the text "2"; remove the quotes')],
    ),
    "fraction for a number": (
        {"count": 1.5},
        [("count", Rule.TYPE, "expected a whole number, found the number 1.5")],
    ),
    "boolean for a number": (
        {"count": True},
        [("count", Rule.TYPE, "expected a whole number, found the boolean true")],
    ),
    "too small": ({"count": 0}, [("count", Rule.INVALID, "must be at least 1, is 0")]),
    "too large": ({"count": 2**31}, [("count", Rule.INVALID, "must be at most 2147483647, is 2147483648")]),
    "text for a boolean": (
        {"isOn": "True"},
        [("isOn", Rule.TYPE, 'expected true or false, found the text "True"; remove the quotes')],
    ),
    "text for a float": ({"ratio": "x"}, [("ratio", Rule.TYPE, 'expected a number, found the text "x"')]),
    "no time": (
        {"when": "yesterday"},
        [("when", Rule.TYPE, 'expected a time such as 2026-01-31T12:00:00Z, found the text "yesterday"')],
    ),
    "time without zone": (
        {"when": "2026-01-01T00:00:00"},
        [
            (
                "when",
                Rule.TYPE,
                "expected a time such as 2026-01-31T12:00:00Z, found the text "
                '"2026-01-01T00:00:00", which has no time zone; add Z for UTC',
            )
        ],
    ),
    "number for text": (
        {"labels": {"a": 1e3}},
        [("labels[a]", Rule.TYPE, 'expected a string, found the number 1000.0; put it in quotes: "1000.0"')],
    ),
    "null for text": (
        {"labels": {"a": None}},
        [("labels[a]", Rule.TYPE, 'expected a string, found nothing; write "" for an empty one')],
    ),
    "label syntax": (
        {"labels": {"a b": "c d"}},
        [
            (
                "labels[a b]",
                Rule.INVALID,
                "\"a b\" is no label key: the name has 1 to 63 letters, digits, '-', '_' or '.', "
                "with a letter or digit at both ends",
            ),
            (
                "labels[a b]",
                Rule.INVALID,
                "\"c d\" is no label value: it has at most 63 letters, digits, '-', '_' or '.', "
                "with a letter or digit at both ends",
            ),
        ],
    ),
    "no quantity": (
        {"limits": {"cpu": "lots", "memory": True}},
        [
            (
                "limits[cpu]",
                Rule.INVALID,
                "'lots' is no quantity; write a number with a suffix: 500m, 2, 1.5, 16Gi, 1e3",
            ),
            ("limits[memory]", Rule.TYPE, "expected a quantity such as 2, 500m or 1Gi, found a boolean"),
        ],
    ),
    "text for a list": (
        {"words": "python train.py --fast -v"},
        [
            (
                "words",
                Rule.TYPE,
                'expected a list, found the text "python train.py --fast -v"; '
                'write ["python", "train.py", "--fast", ...]',
            )
        ],
    ),
    "object for a list": (
        {"inners": {"name": "a"}},
        [("inners", Rule.TYPE, "expected a list, found an object; begin each item with '- '")],
    ),
    "too many items, twice the same": (
        {"words": ["a", "b", "a", "c"]},
        [
            ("words", Rule.TOO_MANY, "may have at most 3 items, has 4"),
            ("words[2]", Rule.DUPLICATE, '"a" is there already, at [0]'),
        ],
    ),
    "twice the same key": (
        {"inners": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
        [("inners[2]", Rule.DUPLICATE, '"name: a" is there already, at [0]')],
    ),
    "length": (
        {"inners": [{"name": ""}, {"name": "abcdef"}]},
        [
            ("inners[0].name", Rule.INVALID, "must not be empty"),
            ("inners[1].name", Rule.TOO_LONG, "may have at most 5 characters, has 6"),
        ],
    ),
    "none of the values": (
        {"inners": [{"name": "a", "mode": "sfot"}]},
        [
            (
                "inners[0].mode",
                Rule.NOT_SUPPORTED,
                '"sfot" is not supported; use hard or soft; did you mean soft?',
            )
        ],
    ),
    "pattern": (
        {"uri": "bucket"},
        [("uri", Rule.INVALID, 'expected a URI such as s3://bucket, found "bucket"')],
    ),
    "pattern, and a line break": (
        {"uri": "a://b\n"},
        [("uri", Rule.INVALID, 'expected a URI such as s3://bucket, found "a://b\\n"')],
    ),
    "NUL": (
        {"words": ["a\0"]},
        [("words[0]", Rule.INVALID, "contains a NUL character, which no program can be given; remove it")],
    ),
    "lone surrogate": (
        {"words": ["\ud800"]},
        [
            (
                "words[0]",
                Rule.INVALID,
                "contains half of a character (a lone surrogate); write the whole character",
            )
        ],
    ),
    "unknown field, close": ({"is_on": True}, [("is_on", Rule.UNKNOWN, "unknown field; did you mean isOn?")]),
    "unknown field, further in": (
        {"command": ["x"]},
        [("command", Rule.UNKNOWN, "unknown field; did you mean loose.command?")],
    ),
    "unknown field, nothing like it": (
        {"inners": [{"name": "a", "zzz": 1}]},
        [("inners[0].zzz", Rule.UNKNOWN, "unknown field; known here: name, mode")],
    ),
    "wrong type in an open object": (
        {"loose": {"command": "x"}},
        [("loose.command", Rule.TYPE, 'expected a list, found the text "x"; write ["x"]')],
    ),
    "two where one is allowed": (
        {"chosen": {"command": ["x"], "inner": {"name": "a"}}},
        [("chosen", Rule.INVALID, "command and inner are set; at most one of command, inner may be")],
    ),
    "empty": ({"chosen": {}}, [("chosen", Rule.INVALID, "must not be empty; leave it out or set a field")]),
    "no object": ({"chosen": [1]}, [("chosen", Rule.TYPE, "expected an object, found a list")]),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_everything_wrong_is_found_with_its_path_and_remedy(case: tuple[Any, Any]) -> None:
    given, expected = case

    assert check(**given)[1] == expected


def test_what_stands_in_the_text_is_what_goes_into_quotes() -> None:
    findings = Findings({"labels[mode]": "0644"}.get)

    compile_shape(Whole).check({"count": 1, "labels": {"mode": 420}}, None, findings)

    assert [error.detail for error in findings.errors] == [
        'expected a string, found the number 420; put it in quotes: "0644"'
    ]


def test_a_field_of_an_open_object_that_looks_misspelt_is_a_warning() -> None:
    findings = Findings()

    compile_shape(Loose).check({"comand": ["x"], "somethingNew": 1}, Path(None, "loose"), findings)

    assert findings.errors == []
    assert [str(warning) for warning in findings.warnings] == [
        "loose.comand: unknown to us and passed on; did you mean command?"
    ]


def test_defaults_are_filled_in_where_an_object_is_there() -> None:
    body = {
        "count": 1,
        "inners": [{"name": "a"}, {"name": "b", "mode": "soft"}],
        "loose": {"inner": {"name": "c"}},
    }

    assert fill_defaults(Whole, body) == {
        "count": 1,
        "inners": [{"name": "a", "mode": "hard"}, {"name": "b", "mode": "soft"}],
        "loose": {"inner": {"name": "c", "mode": "hard"}},
        "isOn": False,
    }


def test_filling_in_defaults_changes_neither_its_argument_nor_a_full_object() -> None:
    body: Json = {"count": 1, "inners": [{"name": "a"}]}
    full = fill_defaults(Whole, body)

    assert body == {"count": 1, "inners": [{"name": "a"}]}
    assert fill_defaults(Whole, full) == full


@pytest.mark.parametrize("kind", ["TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"])
def test_every_field_of_our_kinds_has_a_shape(kind: str) -> None:
    from trainwright.api.kinds import KINDS

    pending, seen = [compile_shape(KINDS[kind].struct)], 0
    while pending:
        shape_ = pending.pop()
        for field in shape_.fields.values():
            seen += 1
            inner = getattr(field.shape, "items", field.shape)
            if hasattr(inner, "fields"):
                pending.append(inner)
    assert seen > 100


def test_a_struct_is_compiled_once() -> None:
    assert compile_shape(Whole) is compile_shape(Whole)


def test_fields_of_pods_that_kubernetes_has_are_not_taken_for_misspelt_ones() -> None:
    pod = {
        "serviceAccount": "a",
        "hostUsers": False,
        "readinessGates": [],
        "os": {"name": "linux"},
        "containers": [
            {
                "name": "node",
                "stdinOnce": True,
                "volumeDevices": [],
                "resizePolicy": [],
                "readinessProbe": {"httpGet": {"port": 80}},
            }
        ],
    }
    findings = Findings()

    compile_shape(PodSpec, is_open=True).check(pod, None, findings)

    assert (findings.errors, findings.warnings) == ([], [])


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_what_was_meant_is_looked_for_a_hundred_times_only(is_open: bool) -> None:
    """Each look takes a millisecond, and an object has room for 100,000 fields that nobody knows."""
    findings = Findings()
    body = {f"container{letter}{i:03}": 1 for i in range(150) for letter in "xs"}
    compile_shape(PodSpec if is_open else Inner, is_open=is_open).check(body, None, findings)
    unknown = [entry for entry in findings.errors + findings.warnings if entry.rule is Rule.UNKNOWN]
    if is_open:  # nothing to say about a field that looks like no other
        assert 0 < len(unknown) <= 100
    else:
        assert [entry.detail == "unknown field" for entry in unknown] == [False] * 100 + [True] * 200
