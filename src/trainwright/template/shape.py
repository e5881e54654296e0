"""Does a runtime's JobSet spec look as the code here expects it? Everything else passes through unread.

The spec stays plain JSON, so that fields newer than ours survive; an API server has checked it against the
schema of JobSet, a file on a laptop has met nobody yet. Only the fields that are read or rewritten are
looked at, and all that is wrong is reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trainwright.api.meta import Json
from trainwright.api.quantity import QuantityError, parse_quantity
from trainwright.field_errors import FieldError, Rule

# What a value at a path must be: returns what is wrong with it.
Check = Callable[[Any, str], list[FieldError]]


def find_shape_errors(spec: Json | None, path: str = "spec.template.spec") -> list[FieldError]:
    """Return what keeps a runtime's JobSet spec from being read; `path` is where it stands in its object."""
    if not spec or not spec.get("replicatedJobs"):
        detail = "a runtime needs at least one replicated job"
        return [FieldError(path=f"{path}.replicatedJobs", rule=Rule.REQUIRED, detail=detail)]
    return _JOB_SET_SPEC(spec, path)


def find_resource_errors(resources: Json | None, path: str) -> list[FieldError]:
    """Return what is wrong with the amounts of core/v1 ResourceRequirements."""
    return _RESOURCES(resources, path) if resources else []


def _of_type(expected: type | tuple[type, ...], words: str) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        wrong = not isinstance(value, expected) or (isinstance(value, bool) and expected is int)
        return [_wrong_type(path, words, value)] if wrong else []

    return check


def _map_of(check_value: Check) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, Mapping):
            return [_wrong_type(path, "a map", value)]
        return [error for key, item in value.items() for error in check_value(item, f"{path}[{key}]")]

    return check


def _fields(checks: Mapping[str, Check], *, required: tuple[str, ...] = ()) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, Mapping):
            return [_wrong_type(path, "a map", value)]
        errors = [
            FieldError(path=f"{path}.{name}", rule=Rule.REQUIRED, detail="is missing")
            for name in required
            if value.get(name) in (None, "", [])
        ]
        for name, check_field in checks.items():
            if value.get(name) is not None:
                errors += check_field(value[name], f"{path}.{name}")
        return errors

    return check


def _list_of(check_element: Check, *, unique: str | None = None) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:
        if not isinstance(value, list):
            return [_wrong_type(path, "a list", value)]
        errors = [error for i, item in enumerate(value) for error in check_element(item, f"{path}[{i}]")]
        if not errors and unique:
            names = [item.get(unique) for item in value]
            errors = [
                FieldError(
                    path=f"{path}[{i}].{unique}", rule=Rule.DUPLICATE, detail="is there twice", value=name
                )
                for i, name in enumerate(names)
                if name in names[:i]
            ]
        return errors

    return check


def _quantity(value: Any, path: str) -> list[FieldError]:
    try:
        parse_quantity(value)
    except QuantityError as error:
        return [FieldError(path=path, rule=Rule.INVALID, detail=str(error), value=value)]
    return []


def _wrong_type(path: str, words: str, value: Any) -> FieldError:
    return FieldError(path=path, rule=Rule.TYPE, detail=f"expected {words}", value=value)


_TEXT: Final = _of_type(str, "text")
_INTEGER: Final = _of_type(int, "a whole number")
_ANY_MAP: Final = _of_type(dict, "a map")
_TEXTS: Final = _list_of(_TEXT)
_NAMED: Final = _fields({"name": _TEXT}, required=("name",))
_METADATA: Final = _fields({"labels": _map_of(_TEXT), "annotations": _map_of(_TEXT)})
_RESOURCES: Final = _fields(
    {"limits": _map_of(_quantity), "requests": _map_of(_quantity), "claims": _list_of(_NAMED)}
)
_CONTAINER: Final = _fields(
    {
        "name": _TEXT,
        "image": _TEXT,
        "command": _TEXTS,
        "args": _TEXTS,
        "env": _list_of(_NAMED),
        "envFrom": _list_of(_ANY_MAP),
        "ports": _list_of(_fields({"containerPort": _INTEGER}, required=("containerPort",))),
        "resources": _RESOURCES,
        "volumeMounts": _list_of(_NAMED),
    },
    required=("name",),
)
_CONTAINERS: Final = _list_of(_CONTAINER, unique="name")
_POD_SPEC: Final = _fields(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "volumes": _list_of(_NAMED),
        "imagePullSecrets": _list_of(_ANY_MAP),
        "schedulingGates": _list_of(_NAMED),
        "nodeSelector": _ANY_MAP,
        "affinity": _ANY_MAP,
        "securityContext": _ANY_MAP,
    },
    required=("containers",),
)
_JOB_SPEC: Final = _fields(
    {
        "parallelism": _INTEGER,
        "completions": _INTEGER,
        "template": _fields({"metadata": _METADATA, "spec": _POD_SPEC}, required=("spec",)),
    },
    required=("template",),
)
_REPLICATED_JOB: Final = _fields(
    {
        "name": _TEXT,
        "replicas": _INTEGER,
        "template": _fields({"metadata": _METADATA, "spec": _JOB_SPEC}, required=("spec",)),
    },
    required=("name", "template"),
)
_VOLUME_CLAIM_POLICY: Final = _fields(
    {
        "retentionPolicy": _ANY_MAP,
        "templates": _list_of(
            _fields(
                {"metadata": _ANY_MAP, "spec": _fields({"resources": _RESOURCES})}, required=("metadata",)
            )
        ),
    }
)
_JOB_SET_SPEC: Final = _fields(
    {
        "replicatedJobs": _list_of(_REPLICATED_JOB, unique="name"),
        "network": _fields({"subdomain": _TEXT}),
        "failurePolicy": _fields({"rules": _list_of(_ANY_MAP)}),
        "volumeClaimPolicies": _list_of(_VOLUME_CLAIM_POLICY),
    }
)
