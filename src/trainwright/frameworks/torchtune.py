"""TorchTune: `tune run` of a TrainJob, completed by recipe, configuration and paths (spec 02 section 5.5).

Which recipe it is follows from the size of the job and from the options among its arguments: full fine-tuning
or LoRA (QLoRA and DoRA are kinds of it), on one device, several, or several nodes. Where the model and the
data are is the runtime's business: those of its options are kept, and may not be given twice.

One function decides about the recipe, for admission as for rendering. The mode is part of the torch
framework, which brings variables and the port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from trainwright.api.constants import (
    ANCESTOR_DATASET_INITIALIZER,
    ANCESTOR_TRAINER,
    NODE,
    TRAINER_PORT,
)
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.processes import count_processes_per_node
from trainwright.template.layout import JobLayout

COMMAND: Final = ("tune", "run")
# Options of a runtime's command that a job keeps, and cannot set itself: where the model is, and its output.
MANAGED_OPTIONS: Final = frozenset(
    {"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"}
)
# Which class reads the dataset, and where the data are: one of the two, never both.
_COMPONENT: Final = "dataset"
_PLACES: Final = frozenset({"dataset.data_dir", "dataset.data_files"})

_LLAMA_1B: Final = "llama3_2/1B"
_LLAMA_3B: Final = "llama3_2/3B"
_LLAMA_70B: Final = "llama3_3/70B"
_QWEN: Final = "qwen2_5/1.5B"
MODELS: Final = (_LLAMA_1B, _LLAMA_3B, _LLAMA_70B, _QWEN)
_MULTI_NODE: Final = frozenset({_LLAMA_70B})
_WITHOUT_QLORA: Final = frozenset({_QWEN})
_QLORA_ON_ONE_DEVICE: Final = frozenset({_LLAMA_1B, _LLAMA_3B})
_WITHOUT_ONE_DEVICE: Final = frozenset({_LLAMA_70B})

_NAME_PREFIX: Final = "torchtune"
_NAME_PARTS: Final = 3


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe of TorchTune and one of its configurations."""

    name: str
    config: str


def has_torchtune_command(layout: JobLayout) -> bool:
    """Say whether the TrainJob leaves the recipe to be completed: its command is exactly `tune run`."""
    return tuple(layout.trainer.command or ()) == COMMAND


def build_torchtune_command(layout: JobLayout) -> tuple[str, ...]:
    """Return the whole command; the job's arguments come after it, as they are."""
    recipe = choose_recipe(layout)
    return (
        *COMMAND,
        *_build_rendezvous(layout),
        recipe.name,
        "--config",
        recipe.config,
        *_list_kept_options(layout),
    )


def choose_recipe(layout: JobLayout) -> Recipe:
    """Return the recipe for the job's model, size and options. Source: spec 02 section 5.6."""
    model, arguments = find_model(layout) or "", _list_arguments(layout)
    if _count_nodes(layout) > 1:
        return Recipe(name="full_finetune_distributed", config=f"{model}_full_multinode")
    kind = "qlora" if is_qlora(arguments) else "lora" if is_lora(arguments) else "full"
    family = "full" if kind == "full" else "lora"
    if _is_on_one_device(layout):
        return Recipe(name=f"{family}_finetune_single_device", config=f"{model}_{kind}_single_device")
    return Recipe(name=f"{family}_finetune_distributed", config=f"{model}_{kind}")


def validate_torchtune(layout: JobLayout) -> list[FieldError]:
    """Return why no recipe of TorchTune does what the job asks for. Source: spec 02 section 5.7."""
    return [*_check_model(layout), *_check_size(layout), *_check_arguments(layout)]


def list_torchtune_warnings(layout: JobLayout) -> list[str]:
    """Return what will not be as the runtime's author may think, and what TorchTune 0.6 does not have."""
    warnings = []
    model, configured = find_model(layout), _find_configured_model(layout)
    if model is not None and configured in MODELS and configured != model:
        warnings.append(
            f"runtime {layout.runtime_name!r} is named for {model}, but its command is for {configured}: "
            f"{model} is trained; rename the runtime, or correct its command"
        )
    if model in _WITHOUT_ONE_DEVICE and _count_nodes(layout) == 1 and _is_on_one_device(layout):
        warnings.append(
            f"TorchTune has no configuration {choose_recipe(layout).config!r}; give each node several "
            "accelerators"
        )
    return warnings


# -- the model ---------------------------------------------------------------------------------------------


def find_model(layout: JobLayout) -> str | None:
    """Return the model to train, such as `llama3_2/1B`; None where nothing says which.

    The runtime's name says so if it has the form `torchtune-FAMILY-SIZE`, or names a model that is known;
    else the `--config` in its command does, so that a runtime may be copied under any name.
    """
    named = parse_model_name(layout.runtime_name)
    has_form = named is not None and layout.runtime_name.startswith(f"{_NAME_PREFIX}-")
    if has_form or named in MODELS:
        return named
    return _find_configured_model(layout) or named


def parse_model_name(runtime_name: str) -> str | None:
    """Return the model of a name `prefix-family-size`: that of `torchtune-llama3.2-1b` is `llama3_2/1B`."""
    parts = runtime_name.split("-")
    if len(parts) != _NAME_PARTS:
        return None
    _, family, size = parts
    return f"{family.replace('.', '_')}/{size.upper()}"


def _find_configured_model(layout: JobLayout) -> str | None:
    """Return the model of the configuration in the runtime's command: that of `llama3_2/1B_full`."""
    for option, value in pairwise([*_list_runtime_command(layout), ""]):
        config = value if option == "--config" else option.removeprefix("--config=")
        if option.startswith("--config") and "/" in config:
            family, _, rest = config.partition("/")
            return f"{family}/{rest.split('_')[0]}"
    return None


def _check_model(layout: JobLayout) -> Iterator[FieldError]:
    model = find_model(layout)
    if model not in MODELS:
        found = f"there is none for {model!r}" if model else "nothing says which model it is"
        detail = (
            f"`tune run` is completed for the models {', '.join(MODELS)}, and {found}: name the runtime "
            "torchtune-FAMILY-SIZE, or give `--config` in its command; or write the whole command into "
            "spec.trainer.command"
        )
        yield _refuse("spec.runtimeRef.name", detail, layout.runtime_name)
    elif model in _WITHOUT_QLORA and "_qlora" in choose_recipe(layout).config:
        detail = f"TorchTune has no QLoRA for {model}; leave out model.quantize_base"
        yield _refuse("spec.runtimeRef.name", detail, layout.runtime_name)


# -- the size ----------------------------------------------------------------------------------------------


def _count_nodes(layout: JobLayout) -> int:
    return layout.trainer_pod_set.count if layout.trainer_pod_set else 1


def _is_on_one_device(layout: JobLayout) -> bool:
    return _count_nodes(layout) == 1 and count_processes_per_node(layout) == 1


def _build_rendezvous(layout: JobLayout) -> Iterator[str]:
    trainer = layout.trainer_pod_set
    if trainer is not None and (trainer.count > 1 or count_processes_per_node(layout) > 1):
        yield f"--rdzv_endpoint={layout.build_first_endpoint(trainer)}:{TRAINER_PORT}"


def _check_size(layout: JobLayout) -> Iterator[FieldError]:
    model, nodes, arguments = find_model(layout), _count_nodes(layout), _list_arguments(layout)
    if nodes > 1 and model not in _MULTI_NODE:
        detail = f"must be 1 for {model}, which TorchTune trains on several nodes in no configuration"
        yield _refuse("spec.trainer.numNodes", detail, nodes)
    if nodes > 1 and (is_lora(arguments) or is_qlora(arguments)):
        detail = "must be 1 with LoRA or QLoRA, for which TorchTune has no recipe on several nodes"
        yield _refuse("spec.trainer.numNodes", detail, nodes)
    if nodes == 1 and model in _QLORA_ON_ONE_DEVICE and is_qlora(arguments) and not _is_on_one_device(layout):
        detail = f"must be 1, or absent, for QLoRA of {model}, which TorchTune has on one device only"
        wanted = layout.trainer.num_proc_per_node
        yield _refuse("spec.trainer.numProcPerNode", detail, "auto" if wanted is None else wanted)
        resources = layout.trainer.resources_per_node
        detail = f"must give each node one GPU for QLoRA of {model}, which TorchTune has on one device only"
        asked = build_json(resources) if resources else None
        yield _refuse("spec.trainer.resourcesPerNode", detail, asked)


# -- options -----------------------------------------------------------------------------------------------


def is_lora(arguments: Sequence[str]) -> bool:
    """Say whether the arguments ask for LoRA, of whatever kind."""
    return any("model.lora_attn_modules" in argument for argument in arguments)


def is_qlora(arguments: Sequence[str]) -> bool:
    """Say whether the arguments ask for QLoRA; DoRA, which has no quantized recipe, wins over it."""
    return _is_on(arguments, "model.quantize_base") and not _is_on(arguments, "model.use_dora")


def _is_on(arguments: Sequence[str], option: str) -> bool:
    pairs = (argument.partition("=") for argument in arguments)
    return any(option in key and value.strip().lower() == "true" for key, _, value in pairs)


def _check_arguments(layout: JobLayout) -> Iterator[FieldError]:
    for i, argument in enumerate(layout.trainer.args or ()):
        if (option := _get_option(argument)) in MANAGED_OPTIONS:
            detail = f"{option} is set by the runtime, which knows where its volumes are; remove it"
            yield _refuse(f"spec.trainer.args[{i}]", detail, argument)


def _list_kept_options(layout: JobLayout) -> list[str]:
    """Return the options of the runtime's command that the job keeps, in their order.

    Those about the dataset are kept where the runtime fetches one: else the data would be fetched, and the
    recipe would train on its own example instead (case B084). The job's own win one by one. The public SDK
    gives no more than the place of the data, and leaves to the runtime how they are read.
    """
    is_fetched = any(pod_set.ancestor == ANCESTOR_DATASET_INITIALIZER for pod_set in layout.pod_sets)
    words = _list_runtime_command(layout)
    said = _read_dataset_options(_list_arguments(layout))
    if _COMPONENT in said and said[_COMPONENT] != _read_dataset_options(words).get(_COMPONENT):
        is_fetched = False  # another kind of dataset has options of its own
    replaced = said.keys() | (_PLACES if said.keys() & _PLACES else frozenset())
    return [
        word
        for word in words
        if _get_option(word) in MANAGED_OPTIONS
        or (is_fetched and _is_about_dataset(word) and _get_option(word) not in replaced)
    ]


def _read_dataset_options(words: Sequence[str]) -> dict[str, str]:
    return {_get_option(word): word.partition("=")[2] for word in words if _is_about_dataset(word)}


def _list_arguments(layout: JobLayout) -> list[str]:
    """Return the arguments that the container will have: the job's, else the runtime's."""
    trainer = layout.trainer_pod_set
    node = trainer.find_container(NODE) if trainer else None
    return layout.trainer.args or (node or {}).get("args") or []


def _list_runtime_command(layout: JobLayout) -> list[str]:
    """Return the commands of all trainer steps of the runtime, one after the other."""
    containers: list[Json | None] = [
        pod_set.find_container(NODE) for pod_set in layout.pod_sets if pod_set.ancestor == ANCESTOR_TRAINER
    ]
    return [word for container in containers for word in (container or {}).get("command") or ()]


def _get_option(argument: str) -> str:
    return argument.partition("=")[0]


def _is_about_dataset(argument: str) -> bool:
    option, is_set, _ = argument.partition("=")
    return bool(is_set) and (option == "dataset" or option.startswith("dataset."))


def _refuse(path: str, detail: str, value: object) -> FieldError:
    return FieldError(path=path, rule=Rule.INVALID, detail=detail, value=value)
