"""Make the TrainJob that `trainwright run` applies, from a script and flags. Pure: nothing is looked up here.

A script runs under torchrun where the runtime is torch's, as ranks of mpirun where it is MPI's, and under the
caller's Python elsewhere; a program (`-- ./prog args`) runs as it is. Source: design section 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from trainwright.api.kueue import QUEUE_LABEL
from trainwright.api.meta import Int32, Int64, ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.caller_python import CallerPython
from trainwright.cli.code_sources import CodeSource, RunWords
from trainwright.errors import UsageError

PLAIN_RUNTIME = "plain"
TORCH_RUNTIME = "torch-distributed"
GPU_RESOURCE = "nvidia.com/gpu"

# 48 characters is what the longest shipped replicated job (`node`) leaves for a name (case B054); the rest
# is for `-` and the random part.
_STEM_CHARACTERS = 36
_UNBUFFERED = "PYTHONUNBUFFERED"


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="form"):
    """What to run, and the arguments that it gets."""

    args: tuple[str, ...] = ()


class Script(Entry, frozen=True, kw_only=True, tag="script"):
    """A Python file, as the caller wrote it."""

    path: str


class Module(Entry, frozen=True, kw_only=True, tag="module"):
    """A Python module, `pkg.mod`."""

    name: str


class Program(Entry, frozen=True, kw_only=True, tag="program"):
    """An executable, looked for on PATH where it has no slash."""

    path: str


class RuntimeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime of the job.

    `kind` None is ClusterTrainingRuntime. `is_torch`: torchrun starts scripts. `mpirun`: the program that
    starts them as ranks on all nodes, None where each node starts its own. `has_resources`: its pods ask for
    CPUs or accelerators, which tell how many processes there are.
    """

    name: str
    kind: str | None = None
    is_torch: bool = False
    mpirun: str | None = None
    has_resources: bool = False


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What options ask of a job, wherever it runs; None means that the runtime decides."""

    runtime: str | None = None
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    image: str | None = None
    num_nodes: Int32 | None = None
    num_proc_per_node: Int32 | None = None
    gpus_per_node: Int32 | None = None
    deadline_seconds: Int64 | None = None
    ttl_seconds: Int32 | None = None
    # Of Kueue, on a cluster.
    queue: str | None = None


class RunRequest(Wishes, frozen=True, kw_only=True):
    """A job to make: what runs, under which name, and what is asked of it."""

    entry: Entry
    name: str
    namespace: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


class Asked(Wishes, frozen=True, kw_only=True):
    """What the command line asks for, before it is known where the job runs."""

    words: RunWords
    code: CodeSource
    name: str | None = None

    def place(self, entry: Entry, name: str, namespace: str, annotations: Mapping[str, str]) -> RunRequest:
        """Return the request, now that it is known what runs there and where that is."""
        wishes = {field: getattr(self, field) for field in Wishes.__struct_fields__}
        return RunRequest(entry=entry, name=name, namespace=namespace, annotations=annotations, **wishes)


def escape_references(text: str) -> str:
    """Return a word for `command`, `args` or a variable that reaches the process as it is.

    Kubernetes replaces `$(NAME)` there and makes `$` of `$$`, so such words have every `$` doubled.
    Source: Kubernetes API reference, core/v1 Container, `args`.
    """
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def build_train_job(request: RunRequest, runtime: RuntimeChoice, python: CallerPython | None) -> TrainJob:
    """Return the TrainJob. Raises UsageError where there is no Python, or no torch, to start a script."""
    command = build_command(request.entry, runtime, python)
    env = dict(request.env)
    if not isinstance(request.entry, Program):
        # Output into a pipe is held back otherwise, and logs could not be followed.
        env.setdefault(_UNBUFFERED, "1")
    gpus = request.gpus_per_node
    trainer = Trainer(
        image=request.image,
        command=[escape_references(word) for word in command],
        args=[escape_references(word) for word in request.entry.args] or None,
        env=[{"name": name, "value": escape_references(value)} for name, value in env.items()] or None,
        num_nodes=request.num_nodes,
        num_proc_per_node=_count_processes(request, runtime),
        resources_per_node=None if gpus is None else ResourceRequirements(limits={GPU_RESOURCE: gpus}),
    )
    return TrainJob(
        metadata=ObjectMeta(
            name=request.name,
            namespace=request.namespace,
            labels=None if request.queue is None else {QUEUE_LABEL: request.queue},
            annotations=dict(request.annotations) or None,
        ),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name=runtime.name, kind=runtime.kind),
            trainer=trainer,
            active_deadline_seconds=request.deadline_seconds,
            ttl_seconds_after_finished=request.ttl_seconds,
        ),
    )


def _count_processes(request: RunRequest, runtime: RuntimeChoice) -> int | None:
    """Return the processes of each node: as torchrun one, where nothing else tells the number."""
    is_open = (
        request.num_proc_per_node is None and request.gpus_per_node is None and not runtime.has_resources
    )
    return 1 if is_open and runtime.is_torch else request.num_proc_per_node


def build_command(entry: Entry, runtime: RuntimeChoice, python: CallerPython | None) -> tuple[str, ...]:
    """Return the words that start the entry, without its arguments."""
    if isinstance(entry, Program):
        return (entry.path,)
    if python is None:
        raise UsageError(
            "there is no python on PATH to run the script with; activate an environment that has one"
        )
    launcher = python.command
    if runtime.is_torch:
        if python.torchrun is None:
            raise UsageError(
                f"runtime {runtime.name!r} starts scripts by torchrun, but {python.command[0]!r} cannot "
                "import torch; activate an environment that has it, `pip install torch`, or choose "
                "`--runtime plain`"
            )
        launcher = python.torchrun
    if runtime.mpirun is not None:
        launcher = (runtime.mpirun, *launcher)
    if isinstance(entry, Module):
        return (*launcher, "-m", entry.name)
    if isinstance(entry, Script):
        return (*launcher, entry.path)
    raise TypeError(f"unknown entry {entry!r}")


def choose_runtime_name(entry: Entry, python: CallerPython | None) -> str:
    """Return the runtime of a job that names none: torch's for Python code that finds torch, else plain."""
    has_torch = python is not None and python.torchrun is not None
    return TORCH_RUNTIME if has_torch and not isinstance(entry, Program) else PLAIN_RUNTIME


def derive_name(entry: Entry, suffix: str) -> str:
    """Return a name for the job: what can be kept of the entry's name, then `-` and the suffix.

    `train.py` becomes `train-x7k2p`; the result is an RFC 1035 label. `suffix` is lower-case alphanumeric.
    """
    if isinstance(entry, Module):
        words = entry.name.rsplit(".", 1)[-1]
    elif isinstance(entry, Script | Program):
        words = entry.path.rsplit("/", 1)[-1]
        words = words.rsplit(".", 1)[0] or words
    else:
        raise TypeError(f"unknown entry {entry!r}")
    stem = re.sub(r"[^a-z0-9]+", "-", words.lower())[:_STEM_CHARACTERS].strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"job-{stem}".rstrip("-")
    return f"{stem}-{suffix}"


def parse_process_count(text: str | None, option: str) -> int | None:
    """Return a count of nodes or processes that is written in torchrun's way.

    A TrainJob holds one number: torchrun's elastic ranges (`1:4`) and words (`auto`, `gpu`) are refused in
    words of the user.
    """
    if text is None:
        return None
    if ":" in text:
        raise UsageError(f"{option}: {text!r} is an elastic range; a TrainJob has one number: give that")
    if text in {"auto", "cpu", "gpu", "xpu"}:
        raise UsageError(
            f"{option}: give a number instead of {text!r}; without the option a job with "
            "`--gpus-per-node` gets one process per GPU, any other job one process per node"
        )
    if not (text.isascii() and text.isdigit()) or int(text) < 1 or int(text) > 2**31 - 1:
        raise UsageError(f"{option}: {text!r} is not a whole number from 1 up")
    return int(text)
