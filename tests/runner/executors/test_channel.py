"""One attempt of a container, asked for things at the moments at which it begins and ends."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from runner.executors.pods import PATIENCE_SECONDS
from trainwright.runner.executors.channel import ContainerChannel, ContainerSetup, Outcome
from trainwright.runner.executors.isolation import PROCESSES, Isolation
from trainwright.runner.executors.trial import try_namespaces


@pytest.fixture(params=["namespaces", "processes"])
async def isolation(request: pytest.FixtureRequest) -> Isolation:
    if request.param == "processes":
        return PROCESSES
    found, refusal = await try_namespaces(os.geteuid())
    if not found.mount:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE, half of the executor is not tested: {refusal}")
    return found


def start(isolation: Isolation, *command: str) -> ContainerChannel:
    environment = {"PATH": os.environ["PATH"]}
    return ContainerChannel.open(
        ContainerSetup(isolation=isolation, argv=command, environment=environment, working_directory="/")
    )


def stand_still_until_end(channel: ContainerChannel) -> None:
    """Let nothing of it be read until it has ended; it is still to be collected then."""
    os.waitid(os.P_PID, channel.pid, os.WEXITED | os.WNOWAIT)


async def wait(channel: ContainerChannel) -> Outcome:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await channel.wait()


async def test_a_signal_that_comes_along_with_the_configuration_is_passed_on(isolation: Isolation) -> None:
    """The starter is still on its way when a pod is stopped: it reads both at once."""
    channel = start(isolation, "sleep", "1000")
    channel.signal(signal.SIGTERM)
    assert await wait(channel) == Outcome(exit_code=128 + signal.SIGTERM)


async def test_a_container_that_is_asked_for_something_as_it_ends_has_ended_as_it_did(
    isolation: Isolation,
) -> None:
    """1. It ends. 2. Before that is read it gets a signal, which nobody reads. 3. Its exit code is known."""
    channel = start(isolation, "sh", "-c", "exit 3")
    stand_still_until_end(channel)
    channel.signal(signal.SIGTERM)
    assert await wait(channel) == Outcome(exit_code=3)


async def test_why_a_container_could_not_start_is_told_whatever_it_was_asked_meanwhile(
    isolation: Isolation,
) -> None:
    channel = start(isolation, "no-such-program")
    stand_still_until_end(channel)
    channel.signal(signal.SIGTERM)
    outcome = await wait(channel)
    assert outcome.exit_code == 128
    assert outcome.start_error == 'exec: "no-such-program": executable file not found in $PATH'


async def test_a_probe_of_a_container_that_has_ended_fails(isolation: Isolation) -> None:
    channel = start(isolation, "true")
    stand_still_until_end(channel)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await channel.execute(("true",), 1.0) == 128
    assert await wait(channel) == Outcome(exit_code=0)


async def test_a_container_with_a_large_environment_is_told_all_of_it(isolation: Isolation) -> None:
    """More than a socket takes at once."""
    variables = {f"VARIABLE_{number}": "x" * 100_000 for number in range(12)}
    channel = ContainerChannel.open(
        ContainerSetup(
            isolation=isolation,
            argv=("sh", "-c", '[ "${#VARIABLE_11}" = 100000 ]'),
            environment={"PATH": os.environ["PATH"], **variables},
            working_directory="/",
        )
    )
    assert await wait(channel) == Outcome(exit_code=0)
