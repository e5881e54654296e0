"""From a script and flags to a TrainJob."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.encoding import build_object
from trainwright.cli.build_train_job import (
    Module,
    Program,
    RunRequest,
    RuntimeChoice,
    Script,
    build_command,
    build_train_job,
    choose_runtime_name,
    derive_name,
    parse_process_count,
)
from trainwright.cli.caller_python import CallerPython
from trainwright.errors import UsageError

TORCH = RuntimeChoice(name="torch-distributed", is_torch=True)
MPI = RuntimeChoice(name="mpi-distributed", mpirun="mpirun")
PLAIN = RuntimeChoice(name="plain")
WITH_TORCH = CallerPython(command=("python",), torchrun=("torchrun",))
WITHOUT_TORCHRUN = CallerPython(command=("python3",), torchrun=("python3", "-m", "torch.distributed.run"))
WITHOUT_TORCH = CallerPython(command=("/opt/env/bin/python",), torchrun=None)
SCRIPT = Script(path="src/train.py", args=("--epochs", "3"))


def request(entry=SCRIPT, **fields) -> RunRequest:
    return RunRequest(
        entry=entry, name="digits", namespace="default", annotations={"where": "/home/me"}, **fields
    )


COMMANDS = {
    "script under torch": (SCRIPT, TORCH, WITH_TORCH, ("torchrun", "src/train.py")),
    "script under torch without torchrun": (
        SCRIPT,
        TORCH,
        WITHOUT_TORCHRUN,
        ("python3", "-m", "torch.distributed.run", "src/train.py"),
    ),
    "script elsewhere": (SCRIPT, PLAIN, WITH_TORCH, ("python", "src/train.py")),
    "script of an environment that is not on PATH": (
        SCRIPT,
        PLAIN,
        WITHOUT_TORCH,
        ("/opt/env/bin/python", "src/train.py"),
    ),
    "module under torch": (Module(name="pkg.train"), TORCH, WITH_TORCH, ("torchrun", "-m", "pkg.train")),
    "module elsewhere": (Module(name="pkg.train"), PLAIN, WITH_TORCH, ("python", "-m", "pkg.train")),
    "script under mpirun": (SCRIPT, MPI, WITH_TORCH, ("mpirun", "python", "src/train.py")),
    "module under mpirun": (
        Module(name="mpi4py", args=("train.py",)),
        MPI,
        WITHOUT_TORCH,
        ("mpirun", "/opt/env/bin/python", "-m", "mpi4py"),
    ),
    "program under mpirun": (Program(path="mpirun"), MPI, None, ("mpirun",)),
    "program under torch": (Program(path="./prog"), TORCH, None, ("./prog",)),
    "program elsewhere": (Program(path="nvidia-smi"), PLAIN, None, ("nvidia-smi",)),
}


@pytest.mark.parametrize(("entry", "runtime", "python", "command"), COMMANDS.values(), ids=COMMANDS)
def test_the_command_fits_entry_runtime_and_python(entry, runtime, python, command):
    assert build_command(entry, runtime, python) == command


def test_a_script_without_any_python_is_refused():
    with pytest.raises(UsageError, match="there is no python on PATH"):
        build_command(SCRIPT, PLAIN, None)


def test_a_torch_runtime_without_torch_is_refused_before_anything_starts():
    with pytest.raises(UsageError) as caught:
        build_command(SCRIPT, TORCH, WITHOUT_TORCH)
    assert str(caught.value) == (
        "runtime 'torch-distributed' starts scripts by torchrun, but '/opt/env/bin/python' cannot import "
        "torch; activate an environment that has it, `pip install torch`, or choose `--runtime plain`"
    )


def test_a_script_becomes_a_whole_train_job():
    wanted = request(
        env={"A": "1", "EMPTY": ""},
        image="acme/train:3",
        num_nodes=2,
        num_proc_per_node=4,
        gpus_per_node=4,
        deadline_seconds=3600,
        ttl_seconds=0,
    )
    assert build_object(build_train_job(wanted, TORCH, WITH_TORCH)) == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "digits",
            "namespace": "default",
            "annotations": {"where": "/home/me"},
        },
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": "acme/train:3",
                "command": ["torchrun", "src/train.py"],
                "args": ["--epochs", "3"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "EMPTY", "value": ""},
                    {"name": "PYTHONUNBUFFERED", "value": "1"},
                ],
                "numNodes": 2,
                "numProcPerNode": 4,
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}},
            },
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 0,
        },
    }


def test_a_queue_is_a_label_that_kueue_reads():
    job = build_object(build_train_job(request(queue="team-a"), PLAIN, WITH_TORCH))
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}


def test_a_program_becomes_no_more_than_its_command():
    wanted = request(Program(path="./prog"))
    assert build_object(build_train_job(wanted, RuntimeChoice(name="mine", kind="TrainingRuntime"), None))[
        "spec"
    ] == {
        "runtimeRef": {"name": "mine", "kind": "TrainingRuntime"},
        "trainer": {"command": ["./prog"]},
    }


PROCESSES = {
    "torch alone": (TORCH, {}, 1),
    "torch with a number": (TORCH, {"num_proc_per_node": 4}, 4),
    "torch with GPUs": (TORCH, {"gpus_per_node": 2}, None),
    "torch runtime with resources": (RuntimeChoice(name="gpu", is_torch=True, has_resources=True), {}, None),
    "plain": (PLAIN, {}, None),
}


@pytest.mark.parametrize(("runtime", "flags", "count"), PROCESSES.values(), ids=PROCESSES)
def test_there_is_one_process_per_node_where_nothing_tells_the_number(runtime, flags, count):
    assert build_train_job(request(**flags), runtime, WITH_TORCH).spec.trainer.num_proc_per_node == count


def test_buffering_that_the_caller_asks_for_is_left_alone():
    job = build_train_job(request(env={"PYTHONUNBUFFERED": ""}), PLAIN, WITH_TORCH)
    assert job.spec.trainer.env == [{"name": "PYTHONUNBUFFERED", "value": ""}]


DEFAULT_RUNTIMES = {
    "script with torch": (SCRIPT, WITH_TORCH, "torch-distributed"),
    "script without": (SCRIPT, WITHOUT_TORCH, "plain"),
    "module with torch": (Module(name="m"), WITHOUT_TORCHRUN, "torch-distributed"),
    "program": (Program(path="ls"), WITH_TORCH, "plain"),
    "no python": (SCRIPT, None, "plain"),
}


@pytest.mark.parametrize(("entry", "python", "name"), DEFAULT_RUNTIMES.values(), ids=DEFAULT_RUNTIMES)
def test_the_default_runtime_fits_what_is_run(entry, python, name):
    assert choose_runtime_name(entry, python) == name


NAMES = {
    "train.py": "train-x7k2p",
    "/a/b/Train_Model v2.py": "train-model-v2-x7k2p",
    "archive.tar.py": "archive-tar-x7k2p",
    "2024.py": "job-2024-x7k2p",
    "---.py": "job-x7k2p",
    ".hidden": "hidden-x7k2p",
    "übung.py": "bung-x7k2p",
    "a" * 60 + ".py": "a" * 36 + "-x7k2p",
    "a" * 35 + "-b.py": "a" * 35 + "-x7k2p",
}


@pytest.mark.parametrize(("path", "name"), NAMES.items())
def test_a_job_is_called_after_its_script(path, name):
    assert derive_name(Script(path=path), "x7k2p") == name


def test_a_job_is_called_after_the_last_part_of_its_module():
    assert derive_name(Module(name="pkg.sub.train"), "x7k2p") == "train-x7k2p"


@given(
    st.one_of(
        st.builds(Script, path=st.text()),
        st.builds(Module, name=st.text()),
        st.builds(Program, path=st.text()),
    )
)
def test_every_derived_name_is_a_label_that_leaves_room_for_pod_names(entry):
    name = derive_name(entry, "x7k2p")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 46


COUNTS = {
    "range": ("1:4", "--nodes: '1:4' is an elastic range; a TrainJob has one number: give that"),
    "word": ("auto", "--nodes: give a number instead of 'auto'"),
    "zero": ("0", "--nodes: '0' is not a whole number from 1 up"),
    "negative": ("-2", "is not a whole number from 1 up"),
    "text": ("two", "is not a whole number from 1 up"),
    "too large": ("2147483648", "is not a whole number from 1 up"),
    "other digits": ("٣", "is not a whole number from 1 up"),
}


@pytest.mark.parametrize(("text", "message"), COUNTS.values(), ids=COUNTS)
def test_a_count_that_a_train_job_cannot_hold_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_process_count(text, "--nodes")
    assert message in str(caught.value)


def test_a_count_is_read_and_none_stays_none():
    assert parse_process_count("16", "--nodes") == 16
    assert parse_process_count(None, "--nodes") is None
