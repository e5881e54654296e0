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
from trainwright.template.layout import build_layout


def test_frameworks_take_part_in_a_fixed_order() -> None:
    assert [framework.name for framework in FRAMEWORKS] == ["plain", "torch"]


SELECTED = {
    "no policy": (None, ["plain"]),
    "no framework": (MLPolicy(num_nodes=2), ["plain"]),
    "torch": (TORCH, ["torch"]),
    "jax is not there, and nothing stands in for it": (MLPolicy(jax=JAXPolicy()), []),
}


@pytest.mark.parametrize(("policy", "names"), SELECTED.values(), ids=SELECTED)
def test_selection(policy: MLPolicy | None, names: list[str]) -> None:
    assert [framework.name for framework in select_frameworks(policy)] == names


UNSUPPORTED = {
    "mpi": MLPolicy(mpi=MPIPolicy()),
    "jax": MLPolicy(jax=JAXPolicy()),
    "xgboost": MLPolicy(xgboost=XGBoostPolicy()),
    "flux": MLPolicy(flux=FluxPolicy()),
}


@pytest.mark.parametrize(("name", "policy"), UNSUPPORTED.items(), ids=UNSUPPORTED)
def test_a_framework_that_is_not_there_is_an_error(name: str, policy: MLPolicy) -> None:
    assert find_unsupported(policy, "spec.mlPolicy") == [
        FieldError(
            path="spec.mlPolicy",
            rule=Rule.NOT_SUPPORTED,
            detail=f"framework {name} is not supported by this version; "
            "use a runtime for torch, or one that names no framework",
            value=name,
        )
    ]
    layout = build_layout(train_job(), runtime_spec(policy=policy))
    assert validate_frameworks(layout) == find_unsupported(policy, "spec.runtimeRef")


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
        "spec.trainer.command",
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
