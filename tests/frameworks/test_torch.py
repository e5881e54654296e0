"""Torch, after the case lists of spec 02 sections 16.1 and 16.2 (numbers in the names)."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import TORCH, container, replicated_job, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import EnvInjection, EnvInjectionTarget, MLPolicy, RuntimeSpec, TorchPolicy
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.torch import Torch
from trainwright.template.layout import JobLayout, build_layout

PORTS: tuple[Json, ...] = ({"containerPort": 29500},)


def requests(**amounts: Any) -> ResourceRequirements:
    return ResourceRequirements(requests={name.replace("_", "/"): amount for name, amount in amounts.items()})


def pet(nnodes: int = 1, nproc: str = "1", master: str = "demo-node-0-0.demo") -> tuple[Json, ...]:
    return (
        {"name": "PET_NNODES", "value": str(nnodes)},
        {"name": "PET_NPROC_PER_NODE", "value": nproc},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
        {"name": "PET_MASTER_ADDR", "value": master},
        {"name": "PET_MASTER_PORT", "value": "29500"},
    )


def injecting(**containers: list[str]) -> MLPolicy:
    targets = [EnvInjectionTarget(job_name=job, container_names=names) for job, names in containers.items()]
    return MLPolicy(num_nodes=1, torch=TorchPolicy(env_injection=EnvInjection(targets=targets)))


def layout(job: TrainJob, spec: RuntimeSpec | None = None) -> JobLayout:
    return build_layout(job, spec or runtime_spec(policy=TORCH))


# trainer.numProcPerNode and resources -> PET_NPROC_PER_NODE
PROCESSES: dict[str, tuple[Trainer, str]] = {
    "6 no resources": (Trainer(), "1"),
    "5 four CPUs": (Trainer(resources_per_node=requests(cpu=4)), "4"),
    "7 two CPUs": (Trainer(resources_per_node=requests(cpu="2")), "2"),
    "8 request without a limit": (Trainer(resources_per_node=requests(cpu="3")), "3"),
    "limit without a request": (Trainer(resources_per_node=ResourceRequirements(limits={"cpu": "4"})), "4"),
    "9 two and a half CPUs": (Trainer(resources_per_node=requests(cpu="2.5")), "3"),
    "10 less than one CPU": (Trainer(resources_per_node=requests(cpu="0.7")), "1"),
    "13 thousandths": (Trainer(resources_per_node=requests(cpu="2500m")), "3"),
    "16 rounding up": (Trainer(resources_per_node=requests(cpu="3.7")), "4"),
    "11 accelerators": (
        Trainer(resources_per_node=ResourceRequirements(requests={"example.com/gpu": "2"})),
        "auto",
    ),
    "15 CPUs and accelerators": (
        Trainer(resources_per_node=ResourceRequirements(requests={"cpu": "6", "example.com/gpu": "2"})),
        "auto",
    ),
    "slices of accelerators": (
        Trainer(resources_per_node=ResourceRequirements(limits={"nvidia.com/mig-1g.5gb": "2"})),
        "auto",
    ),
    "12 a number wins over CPUs": (Trainer(num_proc_per_node=3, resources_per_node=requests(cpu="8")), "3"),
    "a number wins over accelerators": (
        Trainer(
            num_proc_per_node=3, resources_per_node=ResourceRequirements(limits={"example.com/gpu": "8"})
        ),
        "3",
    ),
}


# Devices that the runtime names, what a node asks for -> PET_NPROC_PER_NODE. torchrun counts GPUs alone.
NAMED: dict[str, tuple[list[str] | None, Json, str]] = {
    "not named": (None, {"cpu": 96, "habana.ai/gaudi": 8}, "96"),
    "named": (["habana.ai/gaudi"], {"cpu": 96, "habana.ai/gaudi": 8}, "8"),
    "another one named": (["google.com/tpu"], {"cpu": 96, "habana.ai/gaudi": 8}, "96"),
    "GPUs are counted as ever": (["habana.ai/gaudi"], {"cpu": 96, "nvidia.com/gpu": 4}, "auto"),
}


@pytest.mark.parametrize(("named", "limits", "nproc"), NAMED.values(), ids=NAMED)
def test_a_runtime_names_its_accelerators(named: list[str] | None, limits: Json, nproc: str) -> None:
    spec = runtime_spec(policy=MLPolicy(num_nodes=1, torch=TorchPolicy(), accelerators=named))
    job = train_job(Trainer(resources_per_node=ResourceRequirements(limits=limits)))
    contribution = Torch().build_contribution(layout(job, spec))
    assert contribution.pods["node"].containers["node"].env == pet(nproc=nproc)


@pytest.mark.parametrize(("trainer", "nproc"), PROCESSES.values(), ids=PROCESSES)
def test_processes_per_node(trainer: Trainer, nproc: str) -> None:
    assert Torch().build_contribution(layout(train_job(trainer))) == Contribution(
        pods={"node": PodAddition(containers={"node": ContainerAddition(env=pet(nproc=nproc), ports=PORTS)})}
    )


def test_processes_are_counted_from_the_merged_resources() -> None:
    gpus = runtime_spec(
        replicated_job("node", container(resources={"limits": {"example.com/gpu": "2"}})), policy=TORCH
    )
    job = train_job(Trainer(resources_per_node=requests(cpu="8")))
    contribution = Torch().build_contribution(layout(job, gpus))
    assert contribution.pods["node"].containers["node"].env == pet(nproc="auto")


CONTRIBUTIONS: dict[str, tuple[RuntimeSpec, TrainJob, dict[str, dict[str, ContainerAddition]]]] = {
    "4 numNodes of the TrainJob": (
        runtime_spec(policy=TORCH),
        train_job(Trainer(num_nodes=2)),
        {"node": {"node": ContainerAddition(env=pet(2), ports=PORTS)}},
    ),
    "numNodes of the runtime": (
        runtime_spec(policy=MLPolicy(num_nodes=100, torch=TorchPolicy())),
        train_job(Trainer()),
        {"node": {"node": ContainerAddition(env=pet(100), ports=PORTS)}},
    ),
    "14 the address has the job's name": (
        runtime_spec(policy=TORCH),
        train_job(Trainer(), name="other"),
        {"node": {"node": ContainerAddition(env=pet(master="other-node-0-0.other"), ports=PORTS)}},
    ),
    "the address has the replicated job's name and the template's subdomain": (
        runtime_spec(replicated_job("worker"), policy=TORCH, network={"subdomain": "net"}),
        train_job(Trainer()),
        {"worker": {"node": ContainerAddition(env=pet(master="demo-worker-0-0.net"), ports=PORTS)}},
    ),
    "17 everything at once": (
        runtime_spec(policy=TORCH),
        train_job(
            Trainer(
                num_nodes=4,
                resources_per_node=ResourceRequirements(
                    limits={"cpu": "8", "memory": "16Gi", "example.com/gpu": "4"}
                ),
            ),
            name="gpu-job",
        ),
        {"node": {"node": ContainerAddition(env=pet(4, "auto", "gpu-job-node-0-0.gpu-job"), ports=PORTS)}},
    ),
    "a job without a trainer block is set up all the same": (
        runtime_spec(policy=MLPolicy(num_nodes=2, torch=TorchPolicy())),
        train_job(),
        {"node": {"node": ContainerAddition(env=pet(2), ports=PORTS)}},
    ),
    "variables of the TrainJob come first": (
        runtime_spec(policy=TORCH),
        train_job(Trainer(env=[{"name": "LR", "value": "0.1"}])),
        {"node": {"node": ContainerAddition(env=({"name": "LR", "value": "0.1"}, *pet()), ports=PORTS)}},
    ),
    "only the first trainer step is set up": (
        runtime_spec(replicated_job(), replicated_job("more"), policy=TORCH),
        train_job(Trainer(num_nodes=3)),
        {"node": {"node": ContainerAddition(env=pet(3), ports=PORTS)}},
    ),
    "21 injection into an init container, without a port": (
        runtime_spec(
            replicated_job(pod={"initContainers": [container("check")]}), policy=injecting(node=["check"])
        ),
        train_job(Trainer(num_nodes=2)),
        {
            "node": {
                "node": ContainerAddition(env=pet(2), ports=PORTS),
                "check": ContainerAddition(env=pet(2)),
            }
        },
    ),
    "24 injection into two init containers of one target": (
        runtime_spec(
            replicated_job(pod={"initContainers": [container("a"), container("b")]}),
            policy=injecting(node=["a", "b"]),
        ),
        train_job(Trainer()),
        {
            "node": {
                "node": ContainerAddition(env=pet(), ports=PORTS),
                "a": ContainerAddition(env=pet()),
                "b": ContainerAddition(env=pet()),
            }
        },
    ),
    "25 injection into a container that stands before node": (
        runtime_spec(replicated_job("node", container("side"), container()), policy=injecting(node=["side"])),
        train_job(Trainer(env=[{"name": "LR", "value": "0.1"}])),
        {
            "node": {
                "node": ContainerAddition(env=({"name": "LR", "value": "0.1"}, *pet()), ports=PORTS),
                "side": ContainerAddition(env=pet()),
            }
        },
    ),
    "26 no targets": (
        runtime_spec(replicated_job(pod={"initContainers": [container("check")]}), policy=injecting()),
        train_job(Trainer()),
        {"node": {"node": ContainerAddition(env=pet(), ports=PORTS)}},
    ),
    "28 two targets in two jobs": (
        runtime_spec(
            replicated_job(pod={"initContainers": [container("a"), container("unlisted")]}),
            replicated_job("aux", container("main"), ancestor=None, pod={"initContainers": [container("b")]}),
            policy=injecting(node=["a"], aux=["b"]),
        ),
        train_job(Trainer()),
        {
            "node": {
                "node": ContainerAddition(env=pet(), ports=PORTS),
                "a": ContainerAddition(env=pet()),
            },
            "aux": {"b": ContainerAddition(env=pet())},
        },
    ),
    "injection where there is no trainer step meets in the target itself": (
        runtime_spec(
            replicated_job("aux", container("main"), ancestor=None, job={"parallelism": 2}),
            policy=injecting(aux=["main"]),
        ),
        train_job(Trainer(num_nodes=4)),
        {"aux": {"main": ContainerAddition(env=pet(2, master="demo-aux-0-0.demo"))}},
    ),
    "no trainer step": (runtime_spec(replicated_job(ancestor=None), policy=TORCH), train_job(Trainer()), {}),
}


@pytest.mark.parametrize(("runtime", "job", "containers"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions(
    runtime: RuntimeSpec, job: TrainJob, containers: dict[str, dict[str, ContainerAddition]]
) -> None:
    assert Torch().build_contribution(layout(job, runtime)) == Contribution(
        pods={name: PodAddition(containers=found) for name, found in containers.items()}
    )


def target_error(job: str, names: list[str], name: str) -> FieldError:
    return FieldError(
        path="spec.runtimeRef",
        rule=Rule.INVALID,
        detail=f"envInjection target: the runtime has no container {name!r} in a replicated job {job!r}; "
        "correct the runtime's spec.mlPolicy.torch.envInjection",
        value={"jobName": job, "containerNames": names},
    )


VALIDATIONS: dict[str, tuple[RuntimeSpec, Trainer | None, list[FieldError]]] = {
    "no trainer block": (runtime_spec(policy=TORCH), None, []),
    "5 a trainer without numProcPerNode": (runtime_spec(policy=TORCH), Trainer(), []),
    "6 ordinary variables, and others of torchrun's": (
        runtime_spec(policy=TORCH),
        Trainer(env=[{"name": "LR", "value": "1"}, {"name": "PET_RDZV_ID", "value": "1"}]),
        [],
    ),
    "7 reserved variables, sorted": (
        runtime_spec(policy=TORCH),
        Trainer(env=[{"name": name, "value": "0"} for name in ("PET_NODE_RANK", "OK", "PET_MASTER_ADDR")]),
        [
            FieldError(
                path="spec.trainer.env",
                rule=Rule.INVALID,
                detail="PET_MASTER_ADDR, PET_NODE_RANK: set by the torch framework from the job itself; "
                "remove from the list",
                value=["PET_MASTER_ADDR", "PET_NODE_RANK"],
            )
        ],
    ),
    "4, 22 an injection target without the container": (
        runtime_spec(policy=injecting(node=["ghost"])),
        Trainer(),
        [target_error("node", ["ghost"], "ghost")],
    ),
    "27 an injection target without the job, and every container of it": (
        runtime_spec(policy=injecting(nowhere=["a", "b"])),
        Trainer(),
        [target_error("nowhere", ["a", "b"], "a"), target_error("nowhere", ["a", "b"], "b")],
    ),
    "a whole command of TorchTune is a command like any other": (
        runtime_spec(policy=TORCH),
        Trainer(command=["tune", "run", "full_finetune_single_device"]),
        [],
    ),
}


@pytest.mark.parametrize(("runtime", "trainer", "errors"), VALIDATIONS.values(), ids=VALIDATIONS)
def test_validation(runtime: RuntimeSpec, trainer: Trainer | None, errors: list[FieldError]) -> None:
    assert Torch().validate(layout(train_job(trainer), runtime)) == errors


def gpus(count: int) -> ResourceRequirements:
    return ResourceRequirements(limits={"nvidia.com/gpu": count})


WARNINGS: dict[str, tuple[Trainer | None, list[str]]] = {
    "B034 nothing asks for anything": (
        None,
        [
            "neither the runtime nor spec.trainer.resourcesPerNode asks for CPUs or accelerators: "
            "each node runs one process; set spec.trainer.numProcPerNode or resourcesPerNode for more"
        ],
    ),
    "B048 fewer processes than accelerators": (
        Trainer(num_proc_per_node=1, resources_per_node=gpus(2)),
        ["spec.trainer.numProcPerNode is 1, but each node asks for 2 accelerators: 1 of them may stay idle"],
    ),
    "more processes than accelerators": (
        Trainer(num_proc_per_node=4, resources_per_node=gpus(2)),
        [
            "spec.trainer.numProcPerNode is 4, but each node asks for 2 accelerator(s) only: processes would "
            "have to share them"
        ],
    ),
    "slices of GPUs": (
        Trainer(resources_per_node=ResourceRequirements(limits={"nvidia.com/mig-1g.5gb": 2})),
        [
            "each node asks for 2 slices of GPUs (nvidia.com/mig-*), and CUDA shows a process no more than "
            "one: ask for one on each node and for more nodes, or set CUDA_VISIBLE_DEVICES in each process"
        ],
    ),
    "one slice of a GPU": (
        Trainer(resources_per_node=ResourceRequirements(limits={"nvidia.com/mig-1g.5gb": 1})),
        [],
    ),
    "accelerators that the runtime does not name": (
        Trainer(resources_per_node=ResourceRequirements(limits={"cpu": 96, "aws.amazon.com/neuroncore": 8})),
        [
            "each node asks for aws.amazon.com/neuroncore, which does not tell how many processes it has; "
            "set spec.trainer.numProcPerNode, or let the runtime name it in spec.mlPolicy.accelerators"
        ],
    ),
    "accelerators that nobody has to count": (
        Trainer(
            num_proc_per_node=8,
            resources_per_node=ResourceRequirements(limits={"cpu": 96, "habana.ai/gaudi": 8}),
        ),
        [],
    ),
    "devices by claims": (
        Trainer(resources_per_node=ResourceRequirements(limits={"cpu": 96}, claims=[{"name": "gpus"}])),
        [
            "each node asks for devices by claims, which do not tell how many processes it has; set "
            "spec.trainer.numProcPerNode"
        ],
    ),
    "other things of vendors": (
        Trainer(resources_per_node=ResourceRequirements(limits={"cpu": 1, "example.com/input": 1})),
        [],
    ),
    "a number of processes": (Trainer(num_proc_per_node=1), []),
    "as many processes as accelerators": (Trainer(num_proc_per_node=2, resources_per_node=gpus(2)), []),
    "accelerators that torchrun counts": (Trainer(resources_per_node=gpus(8)), []),
    "CPUs": (Trainer(resources_per_node=requests(cpu="2")), []),
}


@pytest.mark.parametrize(("trainer", "warnings"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(trainer: Trainer | None, warnings: list[str]) -> None:
    assert Torch().list_warnings(layout(train_job(trainer))) == warnings


def test_there_is_nothing_to_warn_of_without_a_trainer_step() -> None:
    runtime = runtime_spec(replicated_job(ancestor=None), policy=TORCH)
    assert Torch().list_warnings(layout(train_job(), runtime)) == []
