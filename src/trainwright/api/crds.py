"""The CustomResourceDefinitions, made of the same structs that reading checks by.

In: the schema of the JobSet CRD, for the parts that are JobSet's and Kubernetes' own (pod templates, volumes,
variables). Out: CRDs as plain JSON. Pure; `scripts/generate_crds.py` reads the one and writes the other.

From the JobSet schema descriptions are dropped (they would be nine tenths of the size) and so are its
transition rules: JobSet freezes parts of a running JobSet, but a runtime may be edited at any time.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from trainwright.api import markers
from trainwright.api.constants import GROUP, VERSION
from trainwright.api.jobset import JobSetSpec
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.pod import (
    Affinity,
    EnvVar,
    LocalObjectReference,
    PodSchedulingGate,
    ResourceClaim,
    Toleration,
    Volume,
    VolumeMount,
)
from trainwright.api.runtime import ClusterTrainingRuntime, TrainingRuntime
from trainwright.api.schema import unwrap
from trainwright.api.trainjob import ContainerPatch, PodSpecPatch, TrainJob

RULES: Final = "x-kubernetes-validations"

# Where in a pod's schema each checked shape stands; [] steps into the items of a list.
_CORE_TYPES: Final[dict[type[msgspec.Struct], str]] = {
    EnvVar: "containers[].env[]",
    Volume: "volumes[]",
    VolumeMount: "containers[].volumeMounts[]",
    ResourceClaim: "containers[].resources.claims[]",
    LocalObjectReference: "imagePullSecrets[]",
    Toleration: "tolerations[]",
    PodSchedulingGate: "schedulingGates[]",
    Affinity: "affinity",
}
# Plain JSON that has no struct of its own.
_CORE_FIELDS: Final[dict[tuple[type[msgspec.Struct], str], str]] = {
    (ContainerPatch, "securityContext"): "containers[].securityContext",
    (PodSpecPatch, "securityContext"): "securityContext",
}

_IMMUTABLE: Final = {"rule": "self == oldSelf", "message": "may not change; make a new object for that"}


def _immutable_field(*path: str, empty: str | None = None) -> Json:
    """Return a rule of the parent that a field neither changes, nor comes, nor goes.

    Where `empty` is given, an absent field is the same as one with that value.
    """
    name = ".".join(path)

    def value(root: str) -> str:
        present = " && ".join(f"has({root}.{'.'.join(path[: depth + 1])})" for depth in range(len(path)))
        return f"({present} ? {root}.{name} : {empty})"

    if empty is not None:
        rule = f"{value('self')} == {value('oldSelf')}"
    else:
        rule = (
            f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        )
    return {"rule": rule, "message": f"{name} may not change; make a new TrainJob for that"}


# Rules that go beyond one field, by path. The size of the trainer (nodes, processes, resources) may change
# while the job is suspended, which only admission can tell.
_RULES: Final[dict[tuple[type[msgspec.Struct], str], list[Json]]] = {
    (TrainJob, ""): [
        {
            "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') "
            "&& size(self.metadata.name) <= 63",
            "message": "metadata.name must be lower case letters, digits and '-', begin with a letter and "
            "end with a letter or digit, at most 63 characters",
        }
    ],
    (TrainJob, "spec"): [
        _immutable_field("initializer"),
        _immutable_field("activeDeadlineSeconds"),
        _immutable_field("managedBy"),
        _immutable_field("trainer", "image", empty="''"),
        _immutable_field("trainer", "command", empty="[]"),
        _immutable_field("trainer", "args", empty="[]"),
        _immutable_field("trainer", "env", empty="[]"),
    ],
    (TrainJob, "spec.runtimeRef"): [_IMMUTABLE],
    (TrainJob, "status.trainerStatus"): [
        {
            "rule": "has(self.lastUpdatedTime)",
            "message": "lastUpdatedTime is required when trainerStatus is present",
        }
    ],
}

_COLUMNS: Final = [
    {"name": "State", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Runtime", "type": "string", "jsonPath": ".spec.runtimeRef.name"},
    {"name": "Nodes", "type": "integer", "jsonPath": ".spec.trainer.numNodes"},
    {"name": "Progress", "type": "integer", "jsonPath": ".status.trainerStatus.progressPercentage"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def build_crds(job_set_schema: Json) -> list[Json]:
    """Return the CRDs of TrainJob, TrainingRuntime and ClusterTrainingRuntime.

    `job_set_schema` is the `openAPIV3Schema` of JobSet v1alpha2 as its CRD has it.
    """
    core = _Core(_strip(job_set_schema["properties"]["spec"]))
    train_job = {"additionalPrinterColumns": _COLUMNS, "subresources": {"status": {}}}
    return [
        _build_crd(TrainJob, "trainjobs", _build_version(TrainJob, core, train_job), short_names=("tj",)),
        _build_crd(TrainingRuntime, "trainingruntimes", _build_version(TrainingRuntime, core)),
        _build_crd(
            ClusterTrainingRuntime,
            "clustertrainingruntimes",
            _build_version(ClusterTrainingRuntime, core),
            scope="Cluster",
        ),
    ]


class _Core:
    """Schemas that are not ours: the JobSet spec, and parts of its pod template's spec."""

    def __init__(self, job_set_spec: Json) -> None:
        self.job_set_spec = job_set_spec
        # JobSet's webhook names rules that have no name, before its schema asks for one. Here render does.
        policy = job_set_spec["properties"]["failurePolicy"]["properties"]
        policy["rules"]["items"]["required"].remove("name")
        job = job_set_spec["properties"]["replicatedJobs"]["items"]["properties"]["template"]
        self._pod_spec = job["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
        for containers in ("containers[]", "initContainers[]"):
            reference = self.find(f"{containers}.env[].valueFrom.resourceFieldRef")
            reference["properties"]["divisor"]["default"] = "0"  # as ResourceFieldSelector has it

    def find(self, path: str) -> Json:
        """Return the schema at a path of the pod spec such as `containers[].env[]`."""
        schema: Json = self._pod_spec
        for step in path.split("."):
            schema = schema["properties"][step.removesuffix("[]")]
            if step.endswith("[]"):
                schema = schema["items"]
        return schema


def _build_version(kind: type[msgspec.Struct], core: _Core, more: Json | None = None) -> Json:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _Builder(kind, core).build_root()},
        **(more or {}),
    }


def _build_crd(
    kind: type[msgspec.Struct],
    plural: str,
    version: Json,
    *,
    scope: str = "Namespaced",
    short_names: tuple[str, ...] = (),
) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": plural,
                "singular": kind.__name__.lower(),
                **({"shortNames": list(short_names)} if short_names else {}),
            },
            "scope": scope,
            "versions": [version],
        },
    }


class _Builder:
    """Walks the struct of one kind."""

    def __init__(self, kind: type[msgspec.Struct], core: _Core) -> None:
        self._kind = kind
        self._core = core

    def build_root(self) -> Json:
        return self._build_struct(self._kind, {}, "")

    def _build(self, info: mi.Type, path: str) -> Json:
        info, notes = unwrap(info)
        keywords = {
            key: value for key, value in notes.items() if key.startswith("x-kubernetes") or key in _KEYWORDS
        }
        if markers.SHAPE in notes:
            schema = self._find_shape(notes[markers.SHAPE])
        elif markers.QUANTITY in notes:
            schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
        else:
            schema = self._build_bare(info, notes, path)
        return {**schema, **keywords}

    def _build_bare(self, info: mi.Type, notes: Json, path: str) -> Json:
        match info:
            case mi.StructType(cls=kind):
                return {"type": "object"} if kind is ObjectMeta else self._build_struct(kind, notes, path)
            case mi.StrType():
                return {
                    "type": "string",
                    **_present(minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern),
                }
            case mi.IntType():
                return _build_integer(info)
            case mi.BoolType():
                return {"type": "boolean"}
            case mi.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case mi.DictType(value_type=mi.AnyType()):
                return {"type": "object"}
            case mi.DictType(value_type=value_type):
                return {"type": "object", "additionalProperties": self._build(value_type, path)}
            case mi.ListType():
                return {
                    "type": "array",
                    "items": self._build(info.item_type, f"{path}[]"),
                    **_present(minItems=info.min_length, maxItems=info.max_length),
                }
        raise TypeError(f"no CRD schema for {info} at {path}")

    def _build_struct(self, kind: type[msgspec.Struct], notes: Json, path: str) -> Json:
        info = mi.type_info(kind)
        assert isinstance(info, mi.StructType)  # noqa: S101 (narrows the type)
        properties = {}
        required = []
        for field in info.fields:
            below = f"{path}.{field.encode_name}" if path else field.encode_name
            if (kind, field.encode_name) in _CORE_FIELDS:
                properties[field.encode_name] = self._core.find(_CORE_FIELDS[kind, field.encode_name])
            else:
                properties[field.encode_name] = self._build(field.type, below)
            if field.required and below != "metadata":
                required.append(field.encode_name)
        rules = [*_RULES.get((self._kind, path), ()), *_build_choice(notes)]
        return {
            "type": "object",
            "description": (kind.__doc__ or "").strip().split("\n\n")[0].replace("\n", " "),
            "properties": properties,
            **({"required": required} if required else {}),
            **({RULES: rules} if rules else {}),
        }

    def _find_shape(self, kind: type[msgspec.Struct]) -> Json:
        return self._core.job_set_spec if kind is JobSetSpec else self._core.find(_CORE_TYPES[kind])


_KEYWORDS: Final = frozenset(
    {
        "enum",
        "default",
        "minProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
    }
)


def _build_choice(notes: Json) -> list[Json]:
    choices = notes.get(markers.AT_MOST_ONE, ())
    if not choices:
        return []
    present = ", ".join(f"has(self.{choice})" for choice in choices)
    return [
        {
            "rule": f"[{present}].filter(is_set, is_set).size() <= 1",
            "message": f"at most one of {', '.join(choices)} may be set",
        }
    ]


def _build_integer(info: mi.IntType) -> Json:
    is_short = info.le == 2**31 - 1
    lowest = None if info.ge in (-(2**31), -(2**63)) else info.ge
    highest = None if info.le in (2**31 - 1, 2**63 - 1) else info.le
    return {
        "type": "integer",
        "format": "int32" if is_short else "int64",
        **_present(minimum=lowest, maximum=highest),
    }


def _present(**keywords: Any) -> Json:
    return {key: value for key, value in keywords.items() if value is not None}


def _strip(schema: Any) -> Any:
    """Return the schema without descriptions and without rules about what a field was before."""
    if isinstance(schema, list):
        return [_strip(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    stripped = {}
    for key, value in schema.items():
        if key == "description" and isinstance(value, str):
            continue
        if key == RULES:
            value = [rule for rule in value if "oldSelf" not in rule["rule"]]  # noqa: PLW2901
            if not value:
                continue
        stripped[key] = _strip(value)
    return stripped
