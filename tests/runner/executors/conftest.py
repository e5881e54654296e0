"""The executor in both of its ways, for all tests of this folder that do not choose one themselves."""

from __future__ import annotations

import os

import pytest

from trainwright.runner.executors.container_run import Backoff
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces

NO_PAUSE = Backoff(first_seconds=0.0, most_seconds=0.0)


@pytest.fixture(params=["namespaces", "processes"])
async def executor(request):
    if request.param == "namespaces":
        found, refusal = await try_namespaces(os.geteuid())
        if not found.mount:
            pytest.skip(f"NO NAMESPACES ON THIS MACHINE, half of the executor is not tested: {refusal}")
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": request.param}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
async def namespaces():
    found, refusal = await try_namespaces(os.geteuid())
    if not found.mount:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE, this part of the executor is not tested: {refusal}")
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": "namespaces"}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
def processes():
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": "processes"}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pods" / "demo-node-0-0-abcde"
