"""Flux runtimes and their layouts, as short as they can be."""

from __future__ import annotations

from typing import Any

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import FluxPolicy, MLPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import JobLayout, build_layout


def flux_runtime(
    *containers: Json, tasks: int | None = None, num_nodes: int | None = 1, name: str = "node", **pod: Any
) -> RuntimeSpec:
    """A runtime whose trainer runs `run` where no container is given; `pod` are fields of its pod spec."""
    return runtime_spec(
        replicated_job(name, *(containers or (container(command=["run"]),)), pod=pod),
        policy=MLPolicy(num_nodes=num_nodes, flux=FluxPolicy(num_proc_per_node=tasks)),
    )


def flux_layout(spec: RuntimeSpec | None = None, name: str = "demo", **trainer: Any) -> JobLayout:
    """The layout of a TrainJob with this trainer block; without one where nothing is given."""
    return build_layout(train_job(Trainer(**trainer) if trainer else None, name=name), spec or flux_runtime())


def env(**variables: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in variables.items()]
