"""MPI runtimes, as short as they can be: sshd on the nodes, a launcher that depends on them."""

from __future__ import annotations

from typing import Any

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, MPIPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import JobLayout, build_layout

READY = [{"name": "node", "status": "Ready"}]
LAUNCHER_ENDS_IT = {"operator": "All", "targetReplicatedJobs": ["launcher"]}


def node(*containers: Json, **fields: Any) -> Json:
    found = containers or (container(command=["/usr/sbin/sshd"], args=["-De"]),)
    return replicated_job("node", *found, **{"ancestor": None, **fields})


def launcher(*containers: Json, **fields: Any) -> Json:
    return replicated_job("launcher", *containers, **{"dependsOn": READY, **fields})


def mpi_runtime(
    *jobs: Json, policy: MPIPolicy | None = None, num_nodes: int | None = 1, **fields: Any
) -> RuntimeSpec:
    """A runtime with nodes and a launcher where no replicated jobs are given."""
    return runtime_spec(
        *(jobs or (node(), launcher())),
        policy=MLPolicy(num_nodes=num_nodes, mpi=policy or MPIPolicy()),
        **{"successPolicy": LAUNCHER_ENDS_IT, **fields},
    )


def mpi_layout(spec: RuntimeSpec | None = None, name: str = "demo", **trainer: Any) -> JobLayout:
    """The layout of a TrainJob with this trainer block; without one where nothing is given."""
    return build_layout(train_job(Trainer(**trainer) if trainer else None, name=name), spec or mpi_runtime())
