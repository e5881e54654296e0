"""Which kinds can be read, and what to say about those that people give by mistake."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trainwright.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.core import ConfigMap, PersistentVolumeClaim, Secret
from trainwright.api.runtime import ClusterTrainingRuntime, TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.api.wording import shorten, suggest
from trainwright.field_errors import FieldError, Rule

AnyKind = TrainJob | TrainingRuntime | ClusterTrainingRuntime | ConfigMap | Secret | PersistentVolumeClaim


class Kind(msgspec.Struct, frozen=True):
    """A kind that can be read. `is_ours`: admission has more to say about it than its schema."""

    api_version: str
    name: str
    struct: type[AnyKind]
    is_ours: bool = False
    is_namespaced: bool = True


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(API_VERSION, TRAIN_JOB, TrainJob, is_ours=True),
        Kind(API_VERSION, TRAINING_RUNTIME, TrainingRuntime, is_ours=True),
        Kind(
            API_VERSION, CLUSTER_TRAINING_RUNTIME, ClusterTrainingRuntime, is_ours=True, is_namespaced=False
        ),
        Kind("v1", "ConfigMap", ConfigMap),
        Kind("v1", "Secret", Secret),
        Kind("v1", "PersistentVolumeClaim", PersistentVolumeClaim),
    )
}

_V1_JOB: Final = "it is a job of Training Operator V1; `trainwright migrate -f FILE` makes a TrainJob of it"
_TEMPLATE: Final = (
    "put its pod template into a TrainingRuntime (spec.template.spec.replicatedJobs) and refer to that "
    "runtime in a TrainJob"
)
_MISTAKEN: Final[dict[str, str]] = {
    JOB_SET: "a TrainJob makes its own JobSet; put this spec into a TrainingRuntime (spec.template.spec)",
    **dict.fromkeys(("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "JAXJob", "PaddleJob", "MXJob"), _V1_JOB),
    **dict.fromkeys(("Job", "Pod", "Deployment", "StatefulSet", "CronJob", "LeaderWorkerSet"), _TEMPLATE),
    "OptimizationJob": "search over parameters is not supported; write one TrainJob per set of parameters",
}


def find_kind(body: dict[str, Any]) -> Kind | list[FieldError]:
    """Return the kind of an object, or what is wrong with its `apiVersion` and `kind`."""
    errors = [
        _refuse(field, Rule.REQUIRED, f"required, as text; for a TrainJob write {example}")
        for field, example in (("apiVersion", API_VERSION), ("kind", TRAIN_JOB))
        if not isinstance(body.get(field), str) or not body[field]
    ]
    if errors:
        return errors
    name, version = body["kind"], body["apiVersion"]
    kind = KINDS.get(name)
    if kind is None:
        hint = f"; {_MISTAKEN[name]}" if name in _MISTAKEN else suggest(name, list(KINDS))
        detail = f"{shorten(name)} is not read here; known are {', '.join(KINDS)}{hint}"
        return [_refuse("kind", Rule.NOT_SUPPORTED, detail, name)]
    if version != kind.api_version:
        detail = f"{shorten(version)} is not read here; a {name} has {kind.api_version}"
        return [_refuse("apiVersion", Rule.NOT_SUPPORTED, detail, version)]
    return kind


def _refuse(path: str, rule: Rule, detail: str, value: Any = None) -> FieldError:
    return FieldError(path=path, rule=rule, detail=detail, value=value)
