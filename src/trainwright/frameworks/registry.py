"""The frameworks there are, in the order in which they take part. A new one is one module and one line here.

The order is fixed, so that variables come in the same order in every process. Source: spec 01 section 5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainwright.api.runtime import FRAMEWORK_CHOICES, MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.choice import CUSTOM, list_shipped_choices
from trainwright.frameworks.contract import Framework
from trainwright.frameworks.flux import Flux
from trainwright.frameworks.jax import JAX
from trainwright.frameworks.mpi import MPI
from trainwright.frameworks.paddle import Paddle
from trainwright.frameworks.plain import Plain
from trainwright.frameworks.slices import Slices
from trainwright.frameworks.tensorflow import TensorFlow
from trainwright.frameworks.torch import Torch
from trainwright.frameworks.xgboost import XGBoost
from trainwright.template.layout import JobLayout

FRAMEWORKS: Final[tuple[Framework, ...]] = (
    Slices(),  # first: what the TrainJob sets may refer to its variables
    Plain(),
    Torch(),
    MPI(),
    JAX(),
    XGBoost(),
    Flux(),
    TensorFlow(),
    Paddle(),
)

# Names that a framework of another package cannot have.
_SHIPPED: Final = frozenset({*FRAMEWORK_CHOICES, *(framework.name for framework in FRAMEWORKS)} - {CUSTOM})


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
    supported = [choice for choice in FRAMEWORK_CHOICES if choice in names]
    errors = [
        _refuse(
            path,
            f"framework {choice} is not supported by this version; "
            f"use a runtime for {', '.join(supported)}, or one that names no framework",
            choice,
        )
        for choice in list_shipped_choices(policy)
        if choice not in names
    ]
    if policy is not None and policy.custom is not None:
        errors += _find_custom_errors(policy.custom.framework, path, names)
    return errors


def _find_custom_errors(name: str, path: str, names: Sequence[str]) -> list[FieldError]:
    if name in _SHIPPED:
        detail = f"framework {name} is one of ours; write mlPolicy: {{{name}: {{}}}} instead of custom"
        return [_refuse(path, detail, name)]
    if name in names:
        return []
    others = [known for known in names if known not in _SHIPPED]
    detail = (
        f"framework {name} is not installed ({', '.join(others) or 'none'} of other packages is); install "
        "the package that provides it: in the operator's image, and wherever the command line is used"
    )
    return [_refuse(path, detail, name)]


def _refuse(path: str, detail: str, value: str) -> FieldError:
    return FieldError(path=path, rule=Rule.NOT_SUPPORTED, detail=detail, value=value)


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
