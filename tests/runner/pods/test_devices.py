"""GPUs: found without a process, held across processes, on a machine whose files the test makes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainwright.runner.pods.devices import (
    Gpu,
    NotEnoughDevices,
    claim_gpus,
    list_gpus,
    parse_smi,
)
from trainwright.runner.pods.pod_devices import PodDevices

INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 132
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.a5.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""
FIRST, SECOND, THIRD = (Gpu(uuid=f"GPU-{name}", name="NVIDIA H200", index=n) for n, name in enumerate("abc"))


@pytest.fixture
def machine(tmp_path):
    for minor, name in enumerate("abc"):
        folder = tmp_path / "proc/driver/nvidia/gpus" / f"0000:{minor + 1:02x}:00.0"
        folder.mkdir(parents=True)
        text = INFORMATION.format(uuid=f"GPU-{name}", bus=f"{minor + 1:02x}", minor=minor)
        (folder / "information").write_text(text)
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / f"nvidia{minor}").touch()
    (tmp_path / "dev" / "nvidiactl").touch()
    return tmp_path


def test_gpus_are_read_from_proc(machine):
    assert list_gpus({}, machine) == (FIRST, SECOND, THIRD)


def test_a_machine_without_gpus_has_none(tmp_path):
    assert list_gpus({}, tmp_path) == ()


def test_a_container_sees_only_the_devices_it_was_given(machine):
    (machine / "dev" / "nvidia0").unlink()
    assert [gpu.uuid for gpu in list_gpus({}, machine)] == ["GPU-b", "GPU-c"]


def test_a_gpu_that_the_driver_has_not_started_is_left_out(machine):
    file = machine / "proc/driver/nvidia/gpus/0000:02:00.0/information"
    file.write_text(file.read_text().replace("GPU-b", "GPU-????????-????"))
    assert [gpu.uuid for gpu in list_gpus({}, machine)] == ["GPU-a", "GPU-c"]


VISIBLE = {
    "indexes, in their order": ("2,0", ["GPU-c", "GPU-a"]),
    "UUIDs": ("GPU-b", ["GPU-b"]),
    "nothing": ("", []),
    "what comes after a wrong entry does not count": ("1,9,0", ["GPU-b"]),
    "minus one means none": ("-1", []),
    "an ambiguous beginning is wrong": ("GPU-", []),
    "a MIG device": ("MIG-1234", ["MIG-1234"]),
}


@pytest.mark.parametrize(("value", "expected"), VISIBLE.values(), ids=VISIBLE)
def test_a_list_that_is_set_already_limits_and_orders(machine, value, expected):
    assert [gpu.uuid for gpu in list_gpus({"CUDA_VISIBLE_DEVICES": value}, machine)] == expected


def test_what_nvidia_smi_prints_is_read():
    text = "0, GPU-a, NVIDIA H200\n1, GPU-b, NVIDIA H200, PCIe\nNo devices were found\n"
    assert parse_smi(text) == (FIRST, Gpu(uuid="GPU-b", name="NVIDIA H200, PCIe", index=1))


def test_two_jobs_never_get_the_same_gpu(tmp_path):
    gpus = (FIRST, SECOND, THIRD)
    first = claim_gpus(tmp_path, gpus, 2)
    assert first.uuids == ("GPU-a", "GPU-b")
    assert claim_gpus(tmp_path, gpus, 1).uuids == ("GPU-c",)
    first.release()


def test_a_claim_that_cannot_be_met_holds_nothing(tmp_path):
    gpus = (FIRST, SECOND)
    with claim_gpus(tmp_path, gpus, 1):
        with pytest.raises(NotEnoughDevices, match="2 GPUs wanted, 1 of 2 are free"):
            claim_gpus(tmp_path, gpus, 2)
        claim_gpus(tmp_path, gpus, 1).release()
    with pytest.raises(NotEnoughDevices, match="3 GPUs wanted, but this machine has 2 to give"):
        claim_gpus(tmp_path, gpus, 3)


def test_a_lease_ends_with_its_holder(tmp_path):
    """1. Another process claims a GPU. 2. It is killed. 3. The GPU is free."""
    program = (
        "import sys, pathlib, time\n"
        "from trainwright.runner.pods.devices import *\n"
        "lease = claim_gpus(pathlib.Path(sys.argv[1]), (Gpu(uuid='GPU-a'),), 1)\n"
        "print('held', flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(NotEnoughDevices):
            claim_gpus(tmp_path, (FIRST,), 1)
        holder.kill()
    claim_gpus(tmp_path, (FIRST,), 1).release()


def test_a_process_that_is_being_started_holds_no_gpu(tmp_path):
    """Between fork and exec it has every descriptor of the supervisor, and one more is how it looks here."""
    lease = claim_gpus(tmp_path, (FIRST,), 1)
    copy = os.dup(lease._locks[0])
    try:
        lease.release()
        claim_gpus(tmp_path, (FIRST,), 1).release()
    finally:
        os.close(copy)


async def test_wanting_none_touches_nothing(tmp_path):
    lease = await PodDevices(tmp_path / "state", {}).claim({"containers": [{}]})
    assert lease.uuids == ()
    assert not (tmp_path / "state").exists()
