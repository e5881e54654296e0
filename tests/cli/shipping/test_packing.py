from __future__ import annotations

import base64
import io
import random
import tarfile

import pytest

from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.build_train_job import Script
from trainwright.cli.code_sources import CodeUrl, CodeVolume, NoCode, WorkingDirectory
from trainwright.cli.shipping.packing import pack_job
from trainwright.cli.shipping.tree import TooMuchCode
from trainwright.cli.targets import Packed
from trainwright.errors import UsageError
from trainwright.runtimes import load_shipped_runtimes

JOB = TrainJob(
    metadata=ObjectMeta(name="demo", namespace="team"),
    spec=TrainJobSpec(runtime_ref=RuntimeRef(name="plain"), trainer=Trainer(command=["python3", "train.py"])),
)
RUNTIME = load_shipped_runtimes()["plain"]
TRAIN = Script(path="train.py")


def list_names(packed: Packed) -> list[str]:
    archive = b"".join(base64.b64decode(carrier["binaryData"]["part"]) for carrier in packed.carriers)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_the_directory_and_the_progress_package_are_sent(tmp_path):
    (tmp_path / "train.py").write_text("print()")
    names = list_names(pack_job(JOB, RUNTIME, TRAIN, WorkingDirectory(), tmp_path))
    assert [name for name in names if name.startswith("code")] == ["code", "code/train.py"]
    assert "lib/trainwright/progress/__init__.py" in names
    assert "lib/trainwright/__init__.py" not in names  # a package of the image's own is preferred


def test_with_a_volume_only_the_progress_package_is_sent(tmp_path):
    names = list_names(pack_job(JOB, RUNTIME, TRAIN, CodeVolume(claim="src"), tmp_path))
    assert not [name for name in names if name.startswith("code")]


@pytest.mark.parametrize("code", [WorkingDirectory(), CodeVolume(claim="src"), CodeUrl(url="https://x/y")])
def test_what_brings_the_code_to_other_pods_of_mpi_comes_with_it(tmp_path, code):
    (tmp_path / "train.py").write_text("print()")
    runtime = load_shipped_runtimes()["mpi-distributed"]
    packed = pack_job(JOB, runtime, TRAIN, code, tmp_path)
    assert [name for name in list_names(packed) if name.startswith("mpi")] == [
        "mpi",
        "mpi/agent",
        "mpi/start",
    ]
    assert packed.train_job.spec is not None
    assert packed.train_job.spec.trainer is not None
    script = (packed.train_job.spec.trainer.command or [])[2]
    assert "\nexport OMPI_MCA_plm_rsh_agent=/trainwright/work/mpi/agent\n" in script


def test_without_code_the_job_stays_as_it_is(tmp_path):
    assert pack_job(JOB, RUNTIME, TRAIN, NoCode(), tmp_path) == Packed(train_job=JOB)


def test_three_parts_are_sent_and_more_is_refused_with_the_largest_files(tmp_path):
    noise = random.Random(7)
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "weights.bin").write_bytes(noise.randbytes(2_900_000))
    packed = pack_job(JOB, RUNTIME, TRAIN, WorkingDirectory(), tmp_path)
    assert len(packed.carriers) == 3
    assert all(len(str(carrier)) < 1_500_000 for carrier in packed.carriers)
    (tmp_path / "more.bin").write_bytes(noise.randbytes(150_000))
    with pytest.raises(TooMuchCode) as refused:
        pack_job(JOB, RUNTIME, TRAIN, WorkingDirectory(), tmp_path)
    head, largest, second, *_ = str(refused.value).splitlines()
    assert "is 3.1 MB when compressed; up to 3 MB are sent along" in head
    assert (largest.split(), second.split()) == (["2.9", "MB", "weights.bin"], ["0.1", "MB", "more.bin"])


def test_a_script_that_is_ignored_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".gitignore").write_text("*.py\n")
    with pytest.raises(UsageError, match="would not be sent along"):
        pack_job(JOB, RUNTIME, TRAIN, WorkingDirectory(), tmp_path)
