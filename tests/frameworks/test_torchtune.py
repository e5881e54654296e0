"""TorchTune, after the case lists of spec 02 sections 16.1 to 16.3 and 16.17 (numbers in the names)."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import TORCH, container, replicated_job, runtime_spec
from template.builders import runtime as build_runtime
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import (
    EnvInjection,
    EnvInjectionTarget,
    MLPolicy,
    RuntimeSpec,
    TorchPolicy,
)
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.torch import Torch
from trainwright.frameworks.torchtune import (
    Recipe,
    build_torchtune_command,
    choose_recipe,
    is_lora,
    is_qlora,
    parse_model_name,
)
from trainwright.render import render_job_set
from trainwright.template.layout import JobLayout, build_layout

LORA = ["model.lora_attn_modules=[q_proj,v_proj]", "model.lora_rank=8"]
QLORA = [*LORA, "model.quantize_base=True"]
DORA = [*QLORA, "model.use_dora=True"]
DATASET = ["dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet", "dataset.data_dir=/d"]
MANAGED = [
    "output_dir=/out",
    "tokenizer.path=/in/tok",
    "tokenizer.merges_file=/in/merges",
    "checkpointer.checkpoint_dir=/in/model",
]
RUNTIME_COMMAND = [
    "tune",
    "run",
    "--rdzv_endpoint=localhost:29500",
    "full_finetune_distributed",
    "--config",
    "llama3_2/1B_full",
    *DATASET,
    *MANAGED,
]
RENDEZVOUS = "--rdzv_endpoint=demo-node-0-0.demo:29500"


def gpus(number: int) -> ResourceRequirements:
    return ResourceRequirements(limits={"nvidia.com/gpu": str(number)})


def cpus(number: int) -> ResourceRequirements:
    return ResourceRequirements(requests={"cpu": str(number)})


def tune_spec(policy: MLPolicy = TORCH, **node: Any) -> RuntimeSpec:
    return runtime_spec(replicated_job("node", container(command=RUNTIME_COMMAND, **node)), policy=policy)


def job(
    runtime_name: str = "torchtune-llama3.2-1b", *, command: tuple[str, ...] = ("tune", "run"), **fields: Any
) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(name="demo", namespace="ns", uid="u-1"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name=runtime_name), trainer=Trainer(command=list(command), **fields)
        ),
    )


def layout(
    runtime_name: str = "torchtune-llama3.2-1b", spec: RuntimeSpec | None = None, **fields: Any
) -> JobLayout:
    return build_layout(job(runtime_name, **fields), spec or tune_spec())


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("torchtune-llama3.2-1b", "llama3_2/1B"),
        ("torchtune-qwen2.5-1.5b", "qwen2_5/1.5B"),
        ("torchtune-llama", None),
        ("my-torchtune-llama3.2-1b", None),
        ("", None),
    ],
)
def test_1_to_5_the_model_in_a_name(name: str, model: str | None) -> None:
    assert parse_model_name(name) == model


@pytest.mark.parametrize(
    ("arguments", "lora", "qlora"),
    [
        (LORA, True, False),
        (["epochs=2"], False, False),
        ([], False, False),
        (["model.quantize_base=True"], False, True),
        (["model.quantize_base=False"], False, False),
        (["model.quantize_base= true "], False, True),
        (["model.quantize_base"], False, False),
        (["model.quantize_base=True", "model.use_dora=True"], False, False),
        (["model.quantize_base=True", "model.use_dora=False"], False, True),
    ],
)
def test_6_to_14_what_the_arguments_ask_for(arguments: list[str], lora: bool, qlora: bool) -> None:
    assert (is_lora(arguments), is_qlora(arguments)) == (lora, qlora)


RECIPES: dict[str, tuple[Json, str, str]] = {
    "15 one GPU": ({"resources_per_node": gpus(1)}, "full_finetune_single_device", "_full_single_device"),
    "16 one GPU, LoRA": (
        {"resources_per_node": gpus(1), "args": LORA},
        "lora_finetune_single_device",
        "_lora_single_device",
    ),
    "17 one GPU, QLoRA": (
        {"resources_per_node": gpus(1), "args": QLORA},
        "lora_finetune_single_device",
        "_qlora_single_device",
    ),
    "18 four GPUs": ({"resources_per_node": gpus(4)}, "full_finetune_distributed", "_full"),
    "19 four GPUs, LoRA": (
        {"resources_per_node": gpus(4), "args": LORA},
        "lora_finetune_distributed",
        "_lora",
    ),
    "20 four GPUs, QLoRA": (
        {"resources_per_node": gpus(4), "args": QLORA},
        "lora_finetune_distributed",
        "_qlora",
    ),
    "two GPUs, DoRA with a quantized base": (
        {"resources_per_node": gpus(2), "args": DORA},
        "lora_finetune_distributed",
        "_lora",
    ),
    "21 two nodes": (
        {"num_nodes": 2, "resources_per_node": gpus(8)},
        "full_finetune_distributed",
        "_full_multinode",
    ),
    "22 one process, four GPUs": (
        {"num_proc_per_node": 1, "resources_per_node": gpus(4)},
        "full_finetune_single_device",
        "_full_single_device",
    ),
    "23 four processes, four GPUs": (
        {"num_proc_per_node": 4, "resources_per_node": gpus(4)},
        "full_finetune_distributed",
        "_full",
    ),
    "four processes, one GPU": (
        {"num_proc_per_node": 4, "resources_per_node": gpus(1)},
        "full_finetune_distributed",
        "_full",
    ),
    "one CPU": ({"resources_per_node": cpus(1)}, "full_finetune_single_device", "_full_single_device"),
    "four CPUs": ({"resources_per_node": cpus(4)}, "full_finetune_distributed", "_full"),
    "nothing asked for": ({}, "full_finetune_single_device", "_full_single_device"),
}


@pytest.mark.parametrize(("fields", "recipe", "config"), RECIPES.values(), ids=RECIPES)
def test_the_recipe_follows_from_size_and_options(fields: Json, recipe: str, config: str) -> None:
    assert choose_recipe(layout(**fields)) == Recipe(name=recipe, config=f"llama3_2/1B{config}")


@pytest.mark.parametrize(("fields", "recipe", "config"), RECIPES.values(), ids=RECIPES)
def test_only_several_processes_get_a_rendezvous(fields: Json, recipe: str, config: str) -> None:
    is_told = RENDEZVOUS in build_torchtune_command(layout(**fields))
    assert is_told is not recipe.endswith("_single_device")


def test_lora_of_the_runtimes_own_arguments_counts_where_the_job_has_none() -> None:
    lora = tune_spec(args=LORA)
    assert choose_recipe(layout(spec=lora)).config == "llama3_2/1B_lora_single_device"
    assert choose_recipe(layout(spec=lora, args=["epochs=1"])).config == "llama3_2/1B_full_single_device"


COMMANDS: dict[str, tuple[JobLayout, list[str]]] = {
    "B082 one node, one GPU": (
        layout(resources_per_node=gpus(1)),
        ["full_finetune_single_device", "--config", "llama3_2/1B_full_single_device", *MANAGED],
    ),
    "B082 one node, two GPUs": (
        layout(resources_per_node=gpus(2)),
        [RENDEZVOUS, "full_finetune_distributed", "--config", "llama3_2/1B_full", *MANAGED],
    ),
    "16.17.12 thirty nodes": (
        layout("torchtune-llama3.3-70b", num_nodes=30, num_proc_per_node=3),
        [RENDEZVOUS, "full_finetune_distributed", "--config", "llama3_3/70B_full_multinode", *MANAGED],
    ),
    "16.17.13 LoRA on two GPUs": (
        layout(resources_per_node=gpus(2), args=LORA),
        [RENDEZVOUS, "lora_finetune_distributed", "--config", "llama3_2/1B_lora", *MANAGED],
    ),
    "16.17.14 QLoRA on one GPU": (
        layout(resources_per_node=gpus(1), args=QLORA),
        ["lora_finetune_single_device", "--config", "llama3_2/1B_qlora_single_device", *MANAGED],
    ),
    "16.17.15 DoRA with a quantized base": (
        layout(resources_per_node=gpus(2), args=DORA),
        [RENDEZVOUS, "lora_finetune_distributed", "--config", "llama3_2/1B_lora", *MANAGED],
    ),
    "24 a runtime without a command": (
        layout(spec=runtime_spec(policy=TORCH)),
        ["full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"],
    ),
    "26, 27 commands of other steps and containers do not count": (
        layout(
            spec=runtime_spec(
                replicated_job("setup", container(command=["output_dir=/no"]), ancestor=None),
                replicated_job("node", container("side", command=["output_dir=/no"]), container()),
                policy=TORCH,
            )
        ),
        ["full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"],
    ),
    "names of step and network": (
        layout(
            spec=runtime_spec(replicated_job("worker"), policy=TORCH, network={"subdomain": "net"}),
            num_proc_per_node=2,
        ),
        [
            "--rdzv_endpoint=demo-worker-0-0.net:29500",
            "full_finetune_distributed",
            "--config",
            "llama3_2/1B_full",
        ],
    ),
}


@pytest.mark.parametrize(("given", "rest"), COMMANDS.values(), ids=COMMANDS)
def test_the_whole_command(given: JobLayout, rest: list[str]) -> None:
    assert list(build_torchtune_command(given)) == ["tune", "run", *rest]


def fetching(ancestor: str = "dataset-initializer") -> RuntimeSpec:
    return runtime_spec(
        replicated_job("dataset-initializer", container("dataset-initializer"), ancestor=ancestor),
        replicated_job("node", container(command=RUNTIME_COMMAND)),
        policy=TORCH,
    )


def test_b084_a_dataset_that_is_fetched_is_trained_on() -> None:
    assert build_torchtune_command(layout(spec=fetching()))[5:] == (*DATASET, *MANAGED)


# Arguments of the job -> what is kept of the runtime's dataset. The public SDK says where the data of Hugging
# Face are and nothing else, and of those of S3 at most how they are read.
KEPT: dict[str, tuple[list[str], list[str]]] = {
    "another folder": (["dataset.data_dir=/workspace/dataset/."], DATASET[:2]),
    "files instead of a folder": (["dataset.data_files=/workspace/dataset/a.parquet"], DATASET[:2]),
    "the same reader, read in another way": (
        ["dataset=torchtune.datasets.instruct_dataset", "dataset.source=json", "dataset.split=train"],
        DATASET[2:],
    ),
    "another reader, whose options are its own": (["dataset=my.dataset"], []),
    "an option that only begins like it": (["dataset_val.source=json"], DATASET),
}


@pytest.mark.parametrize(("arguments", "kept"), KEPT.values(), ids=KEPT)
def test_b084_a_job_changes_what_it_says_about_the_dataset_and_nothing_else(
    arguments: list[str], kept: list[str]
) -> None:
    command = build_torchtune_command(layout(spec=fetching(), args=arguments))
    assert command[5:] == (*kept, *MANAGED)


def test_b084_without_a_fetched_dataset_the_recipes_own_is_trained_on() -> None:
    assert build_torchtune_command(layout(spec=fetching("model-initializer")))[5:] == tuple(MANAGED)


def env_names(containers: list[Json], name: str) -> list[str]:
    (found,) = (one for one in containers if one["name"] == name)
    return [entry["name"] for entry in found["env"]]


def test_18_to_20_the_trainer_is_not_told_an_address_twice() -> None:
    (replicated,) = render_job_set(
        job(num_nodes=1, resources_per_node=gpus(4), args=["epochs=2"], env=[{"name": "A", "value": "1"}]),
        build_runtime(tune_spec()),
    )["spec"]["replicatedJobs"]
    (node,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert node["env"] == [
        {"name": "A", "value": "1"},
        {"name": "PET_NNODES", "value": "1"},
        {"name": "PET_NPROC_PER_NODE", "value": "auto"},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
    ]
    assert node["ports"] == [{"containerPort": 29500}]
    assert node["command"][:4] == ["tune", "run", RENDEZVOUS, "full_finetune_distributed"]
    assert node["args"] == ["epochs=2"]


def test_23_containers_of_env_injection_are_told_the_address() -> None:
    target = EnvInjectionTarget(job_name="node", container_names=["check"])
    policy = MLPolicy(num_nodes=1, torch=TorchPolicy(env_injection=EnvInjection(targets=[target])))
    spec = runtime_spec(
        replicated_job(
            "node", container(command=RUNTIME_COMMAND), pod={"initContainers": [container("check")]}
        ),
        policy=policy,
    )
    (replicated,) = render_job_set(job(resources_per_node=gpus(4)), build_runtime(spec))["spec"][
        "replicatedJobs"
    ]
    pod = replicated["template"]["spec"]["template"]["spec"]
    five = [
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    ]
    assert env_names(pod["initContainers"], "check") == five
    assert env_names(pod["containers"], "node") == five[:3]


def test_every_trainer_step_runs_the_command() -> None:
    spec = runtime_spec(
        replicated_job("node", container(command=["output_dir=/a"])),
        replicated_job("more", container(command=["output_dir=/b"])),
        policy=TORCH,
    )
    replicated = render_job_set(job(), build_runtime(spec))["spec"]["replicatedJobs"]
    commands = [one["template"]["spec"]["template"]["spec"]["containers"][0]["command"] for one in replicated]
    assert commands[0][-2:] == ["output_dir=/a", "output_dir=/b"]
    assert commands[0] == commands[1]


@pytest.mark.parametrize("command", [("tune", "run", "x"), ("tune",), ("torchrun", "train.py")])
def test_any_other_command_is_left_alone(command: tuple[str, ...]) -> None:
    (replicated,) = render_job_set(job(command=command), build_runtime(tune_spec()))["spec"]["replicatedJobs"]
    (node,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert node["command"] == list(command)
    assert "PET_MASTER_ADDR" in env_names([node], "node")


def test_a_runtimes_own_command_does_not_switch_it_on() -> None:
    (replicated,) = render_job_set(job(command=()), build_runtime(tune_spec()))["spec"]["replicatedJobs"]
    (node,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert node["command"] == RUNTIME_COMMAND
    assert "PET_MASTER_ADDR" in env_names([node], "node")


# -- admission ---------------------------------------------------------------------------------------------


TWO_OF_THE_RUNTIME = tune_spec(policy=MLPolicy(num_nodes=2, torch=TorchPolicy()))

REFUSED: dict[str, tuple[JobLayout, list[str]]] = {
    "13 LoRA on one node": (layout(args=LORA), []),
    "70B on two nodes": (layout("torchtune-llama3.3-70b", num_nodes=2, resources_per_node=gpus(8)), []),
    "8 a model that is not known": (layout("torchtune-llama3.1-70b"), ["spec.runtimeRef.name"]),
    "9 two nodes": (layout("torchtune-llama3.2-3b", num_nodes=2), ["spec.trainer.numNodes"]),
    "two nodes of the runtime": (layout(spec=TWO_OF_THE_RUNTIME), ["spec.trainer.numNodes"]),
    "10 QLoRA of Qwen": (layout("torchtune-qwen2.5-1.5b", args=QLORA), ["spec.runtimeRef.name"]),
    "11 QLoRA on two GPUs": (
        layout(args=QLORA, resources_per_node=gpus(2)),
        ["spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"],
    ),
    "QLoRA of 70B on two GPUs": (
        layout("torchtune-llama3.3-70b", args=QLORA, resources_per_node=gpus(2)),
        [],
    ),
    "QLoRA on one process of two GPUs": (
        layout(args=QLORA, num_proc_per_node=1, resources_per_node=gpus(2)),
        [],
    ),
    "QLoRA on one CPU": (layout(args=QLORA, resources_per_node=cpus(1)), []),
    "QLoRA on four CPUs": (
        layout(args=QLORA, resources_per_node=cpus(4)),
        ["spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"],
    ),
    "12 B083 LoRA on two nodes": (
        layout("torchtune-llama3.3-70b", num_nodes=2, args=LORA),
        ["spec.trainer.numNodes"],
    ),
    "QLoRA alone on two nodes": (
        layout("torchtune-llama3.3-70b", num_nodes=2, args=["model.quantize_base=true"]),
        ["spec.trainer.numNodes"],
    ),
    "14 B083 where the output goes": (layout(args=["output_dir=/mine"]), ["spec.trainer.args[0]"]),
    "15 B083 each is an error": (
        layout(args=["output_dir=/mine", "epochs=1", "tokenizer.path=/t"]),
        ["spec.trainer.args[0]", "spec.trainer.args[2]"],
    ),
    "everything at once": (
        layout("torchtune-llama3.2-1b", num_nodes=2, args=[*LORA, "output_dir=/mine"]),
        ["spec.trainer.numNodes", "spec.trainer.numNodes", "spec.trainer.args[2]"],
    ),
    "the same with another command": (
        layout("any", command=("tune", "run", "x"), num_nodes=2, args=[*LORA, "output_dir=/mine"]),
        [],
    ),
}


@pytest.mark.parametrize(("given", "paths"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: JobLayout, paths: list[str]) -> None:
    errors = Torch().validate(given)
    assert [error.path for error in errors] == paths
    assert {error.rule for error in errors} <= {Rule.INVALID}


def test_errors_name_the_remedy() -> None:
    assert Torch().validate(layout("any", spec=runtime_spec(policy=TORCH))) == [
        FieldError(
            path="spec.runtimeRef.name",
            rule=Rule.INVALID,
            detail="`tune run` is completed for the models llama3_2/1B, llama3_2/3B, llama3_3/70B, "
            "qwen2_5/1.5B, and nothing says which model it is: name the runtime torchtune-FAMILY-SIZE, or "
            "give `--config` in its command; or write the whole command into spec.trainer.command",
            value="any",
        )
    ]
    assert Torch().validate(layout(args=["output_dir=/mine"])) == [
        FieldError(
            path="spec.trainer.args[0]",
            rule=Rule.INVALID,
            detail="output_dir is set by the runtime, which knows where its volumes are; remove it",
            value="output_dir=/mine",
        )
    ]


def configured(*words: str) -> RuntimeSpec:
    return runtime_spec(replicated_job("node", container(command=["tune", "run", *words])), policy=TORCH)


MODELS: dict[str, tuple[str, RuntimeSpec, str]] = {
    "a name of the usual form wins": ("torchtune-qwen2.5-1.5b", tune_spec(), "qwen2_5/1.5B"),
    "so does any name with a known model": ("copy-llama3.2-3b", tune_spec(), "llama3_2/3B"),
    "else the command says it": ("our-tuning", tune_spec(), "llama3_2/1B"),
    "also for a name of three parts": ("our-best-tuning", tune_spec(), "llama3_2/1B"),
    "in one word": ("our", configured("--config=llama3_3/70B_lora"), "llama3_3/70B"),
}


@pytest.mark.parametrize(("name", "spec", "model"), MODELS.values(), ids=MODELS)
def test_where_the_model_comes_from(name: str, spec: RuntimeSpec, model: str) -> None:
    given = layout(name, spec)
    assert choose_recipe(given).config == f"{model}_full_single_device"
    assert Torch().validate(given) == []


@pytest.mark.parametrize("words", [(), ("--config",), ("--config", "my.yaml"), ("--configs", "a/b")])
def test_a_command_that_does_not_say_the_model(words: tuple[str, ...]) -> None:
    assert [error.path for error in Torch().validate(layout("our-tuning", configured(*words)))] == [
        "spec.runtimeRef.name"
    ]


def test_a_name_and_a_command_that_disagree_are_warned_about() -> None:
    given = layout("torchtune-qwen2.5-1.5b", resources_per_node=gpus(1))
    assert Torch().list_warnings(given) == [
        "runtime 'torchtune-qwen2.5-1.5b' is named for qwen2_5/1.5B, but its command is for llama3_2/1B: "
        "qwen2_5/1.5B is trained; rename the runtime, or correct its command"
    ]
    assert Torch().list_warnings(layout(resources_per_node=gpus(1))) == []


def test_a_configuration_that_torchtune_lacks_is_warned_about() -> None:
    spec = configured("--config", "llama3_3/70B_full")
    assert Torch().list_warnings(layout("torchtune-llama3.3-70b", spec, resources_per_node=gpus(1))) == [
        "TorchTune has no configuration 'llama3_3/70B_full_single_device'; give each node several "
        "accelerators"
    ]
    assert Torch().list_warnings(layout("torchtune-llama3.3-70b", spec, resources_per_node=gpus(8))) == []
