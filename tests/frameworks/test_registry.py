from __future__ import annotations

from types import ModuleType

import pytest

import trainwright.frameworks
from template.builders import TORCH, replicated_job, runtime_spec, train_job
from trainwright.api.runtime import (
    EnvInjection,
    EnvInjectionTarget,
    FluxPolicy,
    JAXPolicy,
    MLPolicy,
    MPIPolicy,
    TorchPolicy,
    XGBoostPolicy,
)
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import (
    FRAMEWORKS,
    find_unsupported,
    list_framework_warnings,
    select_frameworks,
    validate_frameworks,
)
from trainwright.frameworks.torch import Torch
from trainwright.template.layout import build_layout

ONLY_TORCH = (Torch(),)


def test_frameworks_take_part_in_a_fixed_order() -> None:
    order = ["slices", "plain", "torch", "mpi", "jax", "xgboost", "flux", "tensorflow", "paddle"]
    names = [framework.name for framework in FRAMEWORKS]
    assert names == [name for name in order if name in names]


SELECTED = {
    "no policy": (None, ["plain"]),
    "no framework": (MLPolicy(num_nodes=2), ["plain"]),
    "torch": (TORCH, ["torch"]),
    "jax": (MLPolicy(jax=JAXPolicy()), ["jax"]),
    "xgboost, with plain beside it": (MLPolicy(xgboost=XGBoostPolicy()), ["plain", "xgboost"]),
}


@pytest.mark.parametrize(("policy", "names"), SELECTED.values(), ids=SELECTED)
def test_selection(policy: MLPolicy | None, names: list[str]) -> None:
    assert [framework.name for framework in select_frameworks(policy)] == names


def test_nothing_stands_in_for_a_framework_that_is_not_there() -> None:
    assert select_frameworks(MLPolicy(jax=JAXPolicy()), ONLY_TORCH) == ()


UNSUPPORTED = {
    "mpi": MLPolicy(mpi=MPIPolicy()),
    "jax": MLPolicy(jax=JAXPolicy()),
    "xgboost": MLPolicy(xgboost=XGBoostPolicy()),
    "flux": MLPolicy(flux=FluxPolicy()),
}


@pytest.mark.parametrize(("name", "policy"), UNSUPPORTED.items(), ids=UNSUPPORTED)
def test_a_framework_that_is_not_there_is_an_error(name: str, policy: MLPolicy) -> None:
    assert find_unsupported(policy, "spec.mlPolicy", ONLY_TORCH) == [
        FieldError(
            path="spec.mlPolicy",
            rule=Rule.NOT_SUPPORTED,
            detail=f"framework {name} is not supported by this version; "
            "use a runtime for torch, or one that names no framework",
            value=name,
        )
    ]
    layout = build_layout(train_job(), runtime_spec(policy=policy))
    unsupported = find_unsupported(policy, "spec.runtimeRef", ONLY_TORCH)
    assert validate_frameworks(layout, ONLY_TORCH) == unsupported


@pytest.mark.parametrize("policy", [None, MLPolicy(), TORCH])
def test_a_framework_that_is_there_is_none(policy: MLPolicy | None) -> None:
    assert find_unsupported(policy, "spec.mlPolicy") == []


def test_all_errors_of_a_framework_are_returned() -> None:
    targets = [EnvInjectionTarget(job_name="node", container_names=["ghost"])]
    policy = MLPolicy(torch=TorchPolicy(env_injection=EnvInjection(targets=targets)))
    job = train_job(Trainer(command=["tune", "run"], env=[{"name": "PET_NNODES", "value": "1"}]))
    layout = build_layout(job, runtime_spec(replicated_job(), policy=policy))
    assert [error.path for error in validate_frameworks(layout)] == [
        "spec.runtimeRef",
        "spec.runtimeRef.name",
        "spec.trainer.env",
    ]


def test_warnings_of_the_framework_are_listed() -> None:
    layout = build_layout(train_job(), runtime_spec(policy=TORCH))
    assert len(list_framework_warnings(layout)) == 1
    assert list_framework_warnings(build_layout(train_job(), runtime_spec())) == []


def test_the_package_exports_what_it_says() -> None:
    public = {
        name for name, value in vars(trainwright.frameworks).items() if not isinstance(value, ModuleType)
    }
    assert {name for name in public if not name.startswith("_")} - {"annotations"} == set(
        trainwright.frameworks.__all__
    )
