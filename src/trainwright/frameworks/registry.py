"""The frameworks there are, in the order in which they take part. A new one is one module and one line here.

The order is fixed, so that variables come in the same order in every process. Source: spec 01 section 5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import Framework
from trainwright.frameworks.jax import JAX
from trainwright.frameworks.plain import Plain
from trainwright.frameworks.torch import Torch
from trainwright.frameworks.xgboost import XGBoost
from trainwright.template.layout import JobLayout

FRAMEWORKS: Final[tuple[Framework, ...]] = (
    Plain(),
    Torch(),
    JAX(),
    XGBoost(),
)

_CHOICES: Final = tuple(
    field.encode_name for field in msgspec.structs.fields(MLPolicy) if field.name != "num_nodes"
)


def select_frameworks(
    policy: MLPolicy | None, frameworks: Sequence[Framework] = FRAMEWORKS
) -> tuple[Framework, ...]:
    """Return the frameworks that take part in jobs of a runtime with this policy, in their order."""
    return tuple(framework for framework in frameworks if framework.is_active(policy))


def find_unsupported(
    policy: MLPolicy | None, path: str, frameworks: Sequence[Framework] = FRAMEWORKS
) -> list[FieldError]:
    """Return an error for each framework that the policy chooses and that is not there.

    `path` is where the error is to be reported: the policy's own in a runtime, `spec.runtimeRef` in a
    TrainJob.
    """
    names = [framework.name for framework in frameworks]
    supported = [choice for choice in _CHOICES if choice in names]
    chosen = [choice for choice in _CHOICES if policy is not None and getattr(policy, choice) is not None]
    return [
        FieldError(
            path=path,
            rule=Rule.NOT_SUPPORTED,
            detail=f"framework {choice} is not supported by this version; "
            f"use a runtime for {', '.join(supported)}, or one that names no framework",
            value=choice,
        )
        for choice in chosen
        if choice not in names
    ]


def validate_frameworks(layout: JobLayout, frameworks: Sequence[Framework] = FRAMEWORKS) -> list[FieldError]:
    """Return everything that the job's frameworks have against it, by path in the TrainJob."""
    errors = find_unsupported(layout.policy, "spec.runtimeRef", frameworks)
    for framework in select_frameworks(layout.policy, frameworks):
        errors += framework.validate(layout)
    return errors


def list_framework_warnings(layout: JobLayout, frameworks: Sequence[Framework] = FRAMEWORKS) -> list[str]:
    """Return what the user should know about the job, in the order of the frameworks."""
    return [
        warning
        for framework in select_frameworks(layout.policy, frameworks)
        for warning in framework.list_warnings(layout)
    ]
