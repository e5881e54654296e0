"""The Flux example: under Flux where it is installed, else under the program that stands for it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.program import Program
from examples.example_run import EXAMPLES, ExampleRun, find_environment
from frameworks.flux.stand_in import write_stand_in
from machine_path import using

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]


@pytest.fixture(params=["stand-in", "Flux"])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExampleRun]:
    """The example, with a `flux` on the PATH of its job."""
    environment = find_environment("TRAIN")
    program = Program(folder=tmp_path, state=tmp_path / "state")
    made = ExampleRun(program, EXAMPLES / "flux", [environment])
    if request.param == "stand-in":
        write_stand_in(tmp_path / "bin/flux")
        (tmp_path / "notes").mkdir()
        program.path = (str(tmp_path / "bin"), *program.path)
        program.extra |= {"STAND_IN": str(tmp_path / "notes"), "STAND_IN_TASKS": "all"}
    elif (flux := shutil.which("flux")) is None:
        pytest.skip("NOT TESTED with Flux: there is no program flux on the PATH")
    else:
        program.path = (*program.path, str(Path(flux).parent))
    with using("/mnt/flux"):
        yield made
        for job in json.loads(program.succeed("list", "-o", "json"))["items"]:
            program.run("delete", job["metadata"]["name"])


def test_four_tasks_share_out_the_settings_and_the_last_one_names_the_best(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    tried = re.findall(r"task (\d) of 4: (\{.*?\}) gives", logs)
    assert len(tried) == 12
    assert len({settings for _, settings in tried}) == 12
    assert {rank for rank, _ in tried} == {"0", "1", "2", "3"}
    assert "best of 12: " in logs
    assert json.loads((example.checkpoints / "best.json").read_text())["accuracy"] > 0.97
    assert example.read_metrics("digits-search")["percent"] == 100


def test_a_second_run_tries_only_what_is_left(example: ExampleRun) -> None:
    example.finish(example.apply())
    for number in (3, 7):
        (example.checkpoints / f"{number}.json").unlink()
    logs = example.finish(example.apply(name="again"))
    assert len(re.findall(r" was tried before", logs)) == 10
    assert len(re.findall(r" gives ", logs)) == 2
