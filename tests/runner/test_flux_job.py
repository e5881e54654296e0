"""Jobs of the shipped Flux runtime on this machine: two pods, each with a host name and a broker of its own.

Where Flux is installed they run under it. Everywhere a program stands for it that notes how it is called; all
else is real: the store, the supervisor, the namespaces of the pods, the scripts, the certificate.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from frameworks.flux.stand_in import read_calls, write_stand_in
from machine_path import using
from runner.lab import Lab
from trainwright.api.encoding import build_object
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces
from trainwright.runtimes import load_shipped_runtimes

pytestmark = pytest.mark.timeout(180)

PODS = {"demo-node-0-0": "127.1.0.1", "demo-node-0-1": "127.1.0.2"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    laboratory = Lab(tmp_path)
    laboratory.bound_seconds = 90.0
    yield laboratory
    laboratory.close()
    laboratory.kill_leftovers()


@pytest.fixture(params=["stand-in", "Flux"])
async def lab_with_flux(request: pytest.FixtureRequest, lab: Lab) -> AsyncIterator[Lab]:
    """A lab whose jobs find a `flux` on their PATH, and a namespace for each pod."""
    found, refusal = await try_namespaces(os.geteuid())
    if not found.mount:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE: {refusal}")
    if request.param == "stand-in":
        folder = lab.work / "notes"
        folder.mkdir()
        write_stand_in(lab.work / "bin/flux")
        lab.environment |= {
            "PATH": f"{lab.work}/bin:{os.environ['PATH']}",
            "STAND_IN": str(folder),
        }
    elif shutil.which("flux") is None:
        pytest.skip("NOT TESTED with Flux: there is no program flux on the PATH")
    with using("/mnt/flux"):
        yield lab


@pytest.fixture
def untouched() -> Iterator[None]:
    """A machine without what the scripts write, and that it is so afterwards.

    Without namespaces the volume of a pod becomes a link there, which pods of other tests must not follow.
    """
    with using("/mnt/flux", alone=True):
        if Path("/mnt/flux").exists():
            pytest.skip("there is a /mnt/flux on this machine")
        yield
        assert not Path("/mnt/flux").exists()


async def submit(lab: Lab, *command: str, retries: int = 0) -> None:
    runtime = build_object(load_shipped_runtimes()["flux-distributed"])
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = retries
    await lab.cluster.apply(runtime, "test")
    await lab.cluster.create(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "demo", "namespace": "default"},
            "spec": {
                "runtimeRef": {"name": "flux-distributed"},
                "trainer": {"numNodes": 2, "command": list(command)},
            },
        }
    )


def read_logs(lab: Lab, container: str) -> dict[str, str]:
    """Return host name -> log."""
    return {
        path.parent.name.rpartition("-")[0]: path.read_text()
        for path in lab.paths.jobs.glob(f"*/pods/demo-node-*/{container}.log")
    }


async def test_a_command_runs_under_brokers_that_share_a_key_and_know_each_others_names(
    lab_with_flux: Lab,
) -> None:
    lab = lab_with_flux
    await submit(lab, "sh", "-c", 'echo "trained with $1"', "train", "two words")
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    assert "trained with two words" in read_logs(lab, "node")["demo-node-0-0"]
    for host, shown in read_logs(lab, "flux-installer").items():
        bootstrap = tomllib.loads(shown.partition("\nno view of Flux here")[0])["bootstrap"]
        assert bootstrap["default_bind"] == f"tcp://{PODS[host]}:%p"
        assert bootstrap["default_connect"] == "tcp://%h.demo:%p"
        assert bootstrap["hosts"] == [{"host": "demo-node-0-[0-1]"}]
        assert bootstrap["default_port"] != 8050


async def test_a_job_whose_command_fails_fails_with_its_exit_code(lab_with_flux: Lab) -> None:
    lab = lab_with_flux
    await submit(lab, "sh", "-c", "echo out of luck >&2; exit 3")
    async with lab.supervising():
        finished = await lab.until_finished()
    assert finished["Failed"][0] == "True"
    job = await lab.cluster.get(lab.key())
    assert re.search(r"\b3\b", job["status"]["cause"]["message"])
    assert "demo-node-0-0" in job["status"]["cause"]["name"]
    assert "out of luck" in read_logs(lab, "node")["demo-node-0-0"]


@pytest.mark.e2e
async def test_where_pods_are_tried_again_all_of_them_are(lab_with_flux: Lab) -> None:
    """1. The command fails. 2. The first pod fails, and the other one after it. 3. Both are made anew."""
    lab = lab_with_flux
    marker = lab.work / "tried"
    await submit(lab, "sh", "-c", f'[ -e "{marker}" ] || {{ touch "{marker}"; exit 3; }}', retries=4)
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    folders = [path.name.rpartition("-")[0] for path in lab.paths.jobs.glob("*/pods/demo-node-*")]
    assert Counter(folders) == {"demo-node-0-0": 2, "demo-node-0-1": 2}


async def test_without_namespaces_nothing_of_the_machine_is_touched(lab: Lab, untouched: None) -> None:
    """Scripts write to fixed paths, which are the machine's own there: they end before they do."""
    write_stand_in(lab.work / "bin/flux")
    lab.environment["PATH"] = f"{lab.work}/bin:{os.environ['PATH']}"
    await submit(lab, "true")
    async with lab.supervising(
        build_executor=lambda *_: ProcessExecutor({"TRAINWRIGHT_ISOLATION": "processes"})
    ):
        assert (await lab.until_finished())["Failed"][0] == "True"
    # The first pod to fail ends the other one, which may not have begun.
    failed = (await lab.cluster.get(lab.key()))["status"]["cause"]["name"].rpartition("-")[0]
    assert "a pod needs a host name of its own" in read_logs(lab, "flux-installer")[failed]


async def test_every_pod_calls_flux_as_its_programs_are_documented(lab_with_flux: Lab) -> None:
    lab = lab_with_flux
    if "STAND_IN" not in lab.environment:
        pytest.skip("only a stand-in notes how it is called")
    await submit(lab, "true")
    async with lab.supervising():
        await lab.until_finished()
    calls = read_calls(Path(lab.environment["STAND_IN"]))
    assert sorted((call.host, call.verb) for call in calls) == [
        ("demo-node-0-0", "R"),
        ("demo-node-0-0", "run"),
        ("demo-node-0-0", "start"),
        ("demo-node-0-1", "R"),
        ("demo-node-0-1", "start"),
    ]
