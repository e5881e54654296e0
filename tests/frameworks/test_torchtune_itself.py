"""What is completed for TorchTune, held against TorchTune: recipes, configurations, how options are read."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import product
from pathlib import Path

import msgspec
import pytest

from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.frameworks.torch import Torch
from trainwright.frameworks.torchtune import build_torchtune_command, choose_recipe
from trainwright.runtimes import load_shipped_runtimes
from trainwright.template.layout import JobLayout, build_layout

LORA = ("model.lora_attn_modules=[q_proj]",)
QLORA = (*LORA, "model.quantize_base=True")

# Prints which configurations each recipe has, and what dataset each configuration and its options give.
PROGRAM = """
import importlib.util, json, pathlib, sys
from omegaconf import OmegaConf
from torchtune._recipe_registry import get_all_recipes
from torchtune.config._parse import TuneRecipeArgumentParser
from torchtune.config._utils import _merge_yaml_and_cli_args
folder = pathlib.Path(importlib.util.find_spec("recipes").origin).parent / "configs"
datasets = []
for name, *words in json.load(sys.stdin):
    sys.argv = ["recipe", "--config", str(folder / f"{name}.yaml"), *words]
    resolved = _merge_yaml_and_cli_args(*TuneRecipeArgumentParser().parse_known_args())
    datasets.append(OmegaConf.to_container(resolved)["dataset"])
recipes = {recipe.name: [config.name for config in recipe.configs] for recipe in get_all_recipes()}
print(json.dumps([recipes, datasets]))
"""


@pytest.fixture
def torchtune_python() -> Path:
    chosen = os.environ.get("TRAINWRIGHT_TORCHTUNE_ENV")
    if not chosen:
        pytest.skip(
            "NOT TESTED: no TorchTune; `make test-full` sets TRAINWRIGHT_TORCHTUNE_ENV and installs it"
        )
    return Path(chosen) / "bin/python"


def ask(python: Path, commands: list[list[str]]) -> tuple[dict[str, list[str]], list[Json]]:
    """Return the configurations of each recipe, and the dataset of each configuration with its options."""
    ran = subprocess.run(
        [python, "-c", PROGRAM],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    recipes, datasets = json.loads(ran.stdout.splitlines()[-1])
    return recipes, datasets


def lay_out(runtime_name: str, **trainer: object) -> JobLayout:
    job = TrainJob(
        metadata=ObjectMeta(name="demo", namespace="ns"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name=runtime_name),
            trainer=msgspec.convert({"command": ["tune", "run"], **trainer}, Trainer),
        ),
    )
    runtime = load_shipped_runtimes()[runtime_name]
    assert runtime.spec is not None
    return build_layout(job, runtime.spec)


def test_torchtune_has_every_recipe_and_configuration_that_is_chosen(torchtune_python: Path) -> None:
    recipes, _ = ask(torchtune_python, [])
    names = [name for name in load_shipped_runtimes() if name.startswith("torchtune-")]
    chosen = set()
    for name, nodes, gpus, arguments in product(names, (1, 2), (1, 2), ((), LORA, QLORA)):
        resources = msgspec.to_builtins(ResourceRequirements(limits={"nvidia.com/gpu": gpus}))
        layout = lay_out(name, numNodes=nodes, args=arguments, resourcesPerNode=resources)
        warned = any("TorchTune has no configuration" in warning for warning in Torch().list_warnings(layout))
        if not Torch().validate(layout) and not warned:
            recipe = choose_recipe(layout)
            chosen.add((recipe.name, recipe.config))
    assert len(chosen) == 18
    assert {(recipe, config) for recipe, config in chosen if config not in recipes[recipe]} == set()


INSTRUCT = "torchtune.datasets.instruct_dataset"
# Arguments as the public SDK gives them -> what the recipe reads.
READ: dict[str, tuple[list[str], Json]] = {
    "a folder": (["dataset.data_dir=/workspace/dataset/."], {"data_dir": "/workspace/dataset/."}),
    "a file": (["dataset.data_files=/workspace/dataset/a"], {"data_files": "/workspace/dataset/a"}),
    "from another source": (["epochs=1"], {"data_dir": "/workspace/dataset/data"}),
    "how to read it": (
        [f"dataset={INSTRUCT}", "dataset.split=train"],
        {"data_dir": "/workspace/dataset/data", "split": "train"},
    ),
}


def test_b084_what_was_fetched_is_what_the_recipe_reads(torchtune_python: Path) -> None:
    commands = []
    for arguments, _ in READ.values():
        command = build_torchtune_command(lay_out("torchtune-llama3.2-1b", args=arguments))
        commands.append([*command[command.index("--config") + 1 :], *arguments])
    _, datasets = ask(torchtune_python, commands)
    expected = [
        {"_component_": INSTRUCT, "packed": False, "source": "parquet", **data} for _, data in READ.values()
    ]
    assert datasets == expected
