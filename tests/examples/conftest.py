"""What tests of examples share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.program import Program
from examples.example_run import EXAMPLES, ExampleRun, find_environment


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExampleRun]:
    """The example that the module names as EXAMPLE; its jobs find their programs in ENVIRONMENTS."""
    environments = [find_environment(name) for name in request.module.ENVIRONMENTS]
    program = Program(folder=tmp_path, state=tmp_path / "state")
    yield ExampleRun(program, EXAMPLES / request.module.EXAMPLE, environments)
    for job in json.loads(program.succeed("list", "-o", "json"))["items"]:
        program.run("delete", job["metadata"]["name"])
