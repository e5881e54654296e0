"""Waking those who wait for the store to change."""

import asyncio

import pytest

from trainwright.cluster.local.watch import LONGEST_POLL_SECONDS, ChangeSignal
from trainwright.errors import StateDirectoryError
from virtual_time import on_virtual_time


class Probe:
    """Counts how often it is asked, and answers what it is told to."""

    def __init__(self):
        self.value = 1
        self.asked = asyncio.Event()
        self.times = 0
        self.error = None

    def __call__(self):
        self.times += 1
        self.asked.set()
        if self.error:
            raise self.error
        return self.value


async def start(signal, seen):
    waiting = asyncio.create_task(signal.wait(seen))
    await asyncio.sleep(0)
    return waiting


@on_virtual_time
async def test_a_write_of_this_process_wakes_at_once():
    probe = Probe()
    signal = ChangeSignal(probe)
    waiting = [await start(signal, 1) for _ in range(3)]
    signal.notify()
    await asyncio.gather(*waiting)
    assert probe.times == 0


@on_virtual_time
async def test_a_write_of_another_process_wakes_with_the_next_poll():
    probe = Probe()
    signal = ChangeSignal(probe)
    waiting = await start(signal, 1)
    await probe.asked.wait()
    assert not waiting.done()
    probe.value = 2
    async with asyncio.timeout(5):
        await waiting


@on_virtual_time
async def test_a_change_between_reading_and_waiting_is_not_missed():
    """1. A watch takes the number and reads. 2. Another process writes. 3. The watch waits with it."""
    probe = Probe()
    seen, probe.value = probe.value, 2
    async with asyncio.timeout(5):
        await ChangeSignal(probe).wait(seen)


@on_virtual_time
async def test_an_error_of_the_probe_reaches_all_who_wait():
    probe = Probe()
    probe.error = StateDirectoryError("gone")
    signal = ChangeSignal(probe)
    waiting = [await start(signal, 1) for _ in range(2)]
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert answers == [probe.error, probe.error]
    probe.error = None
    probe.value = 2
    async with asyncio.timeout(5):
        await signal.wait(1)


@on_virtual_time
async def test_nobody_is_asked_while_nobody_waits():
    probe = Probe()
    signal = ChangeSignal(probe)
    waiting = await start(signal, 1)
    await probe.asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    times = probe.times
    probe.asked.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * LONGEST_POLL_SECONDS):
            await probe.asked.wait()
    assert probe.times == times
