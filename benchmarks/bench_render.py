"""How long does it take to make a TrainJob into the objects to apply, for few nodes and for many?

Data: the shipped torch runtime with 4 and with 10,000 nodes; the same with 20 more containers of 20
variables each and three patches; MPI with 10,000 nodes and the longest name that they leave room for, whose
hostfile needs three ConfigMaps. Baseline: encoding and decoding the rendered objects once as JSON, which
is the least that whoever applies them pays as well. Bias: job and runtime are structs already, as they are
in the operator's caches and after reading a file; reading YAML costs more than all of this. The baseline is
C code of msgspec, ours is Python.
"""

from __future__ import annotations

import msgspec

from measure import Figure, best_of, show
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import (
    ClusterTrainingRuntime,
    JobSetTemplate,
    MLPolicy,
    MPIPolicy,
    RuntimeSpec,
)
from trainwright.api.trainjob import (
    ResourceRequirements,
    RuntimePatch,
    RuntimeRef,
    Trainer,
    TrainJob,
    TrainJobSpec,
)
from trainwright.render import render
from trainwright.runtimes import load_shipped_runtimes

RUNTIME = load_shipped_runtimes()["torch-distributed"]
LIMIT = 0.030
# Two lines for each node.
HOSTFILE_LIMIT = 0.060
LONGEST_NAME = "a" * 44


def measure() -> list[Figure]:
    """Time rendering against encoding and decoding what was rendered."""
    large = build_large_runtime()
    return [
        build_figure("render 4 nodes", build_job(4), RUNTIME),
        build_figure("render 10,000 nodes", build_job(10_000), RUNTIME),
        build_figure("render 10,000 nodes, 21 containers, 3 patches", build_job(10_000, patches=3), large),
        build_figure(
            "render 10,000 MPI nodes, longest name",
            build_job(10_000, name=LONGEST_NAME),
            build_mpi_runtime(),
            HOSTFILE_LIMIT,
        ),
    ]


def build_figure(name: str, job: TrainJob, runtime: ClusterTrainingRuntime, limit: float = LIMIT) -> Figure:
    objects = render(job, runtime)
    return Figure(
        name=name,
        ours=best_of(7, lambda: render(job, runtime), number=100),
        baseline_name="JSON there and back",
        baseline=best_of(7, lambda: msgspec.json.decode(msgspec.json.encode(objects)), number=100),
        limit=limit,
    )


def build_job(num_nodes: int, *, name: str = "demo", patches: int = 0) -> TrainJob:
    trainer = Trainer(
        num_nodes=num_nodes,
        image="registry.example/train:1",
        command=["torchrun", "train.py"],
        env=[{"name": f"VARIABLE_{i}", "value": "x"} for i in range(10)],
        resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": 8, "memory": "512Gi"}),
    )
    return TrainJob(
        metadata=ObjectMeta(name=name, namespace="team-a", uid="u-1"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name="torch-distributed"),
            trainer=trainer,
            runtime_patches=[build_patch(i) for i in range(patches)],
        ),
    )


def build_patch(number: int) -> RuntimePatch:
    env = [{"name": f"PATCHED_{i}", "value": str(number)} for i in range(10)]
    pod = {"nodeSelector": {"pool": str(number)}, "containers": [{"name": f"side-{number}", "env": env}]}
    changes = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return msgspec.convert(
        {
            "manager": f"example.com/{number}",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": changes}}},
        },
        RuntimePatch,
    )


def build_mpi_runtime() -> ClusterTrainingRuntime:
    """A runtime with nodes and a launcher, which trains as well."""
    pod: Json = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "mpi:1"}]}}}}
    jobs = [{"name": name, "template": pod} for name in ("node", "launcher")]
    spec = RuntimeSpec(
        ml_policy=MLPolicy(num_nodes=1, mpi=MPIPolicy(run_launcher_as_node=True)),
        template=JobSetTemplate(spec={"replicatedJobs": jobs}),
    )
    return msgspec.structs.replace(RUNTIME, spec=spec)


def build_large_runtime() -> ClusterTrainingRuntime:
    """The shipped runtime with 20 more containers of 20 variables each."""
    assert RUNTIME.spec is not None
    assert RUNTIME.spec.template is not None
    spec: Json = msgspec.json.decode(msgspec.json.encode(RUNTIME.spec.template.spec))
    pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = [{"name": f"VARIABLE_{i}", "value": "x"} for i in range(20)]
    pod["containers"] += [
        {"name": f"side-{i}", "image": "registry.example/side:1", "env": env} for i in range(20)
    ]
    replaced = msgspec.structs.replace(RUNTIME.spec, template=JobSetTemplate(spec=spec))
    return msgspec.structs.replace(RUNTIME, spec=replaced)


if __name__ == "__main__":
    print(__doc__)
    show(measure())
