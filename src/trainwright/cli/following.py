"""Follow a job on the caller's screen until it ends; ctrl-C once asks it to stop, twice kills it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import get_phase, is_finished
from trainwright.cli.progress_display import Display
from trainwright.cli.stopping import build_key, request_stop
from trainwright.cli.targets import LogRequest, Target
from trainwright.cli.watching import watch_train_job
from trainwright.errors import NotFound

# Output that is still on its way when the job has ended is shown to its end. This is for a reader that shows
# nothing any more and does not end; and for the output of a job that was asked to stop.
_LAST_OUTPUT_SECONDS = 5.0
_TICK_SECONDS = 0.125
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def catch_signals() -> Iterator[asyncio.Queue[signal.Signals]]:
    """Collect ctrl-C and SIGTERM in a queue, from before there is a job until nothing is left to do.

    One that whoever started the command lets it ignore stays ignored: a script's `trainwright run ... &` is
    not ended by a ctrl-C that is meant for the script.
    """
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    caught = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, received.put_nowait, number)
    try:
        yield received
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


class Follower:
    """Shows one job. `signal_received` is the signal that ended it, None where it ended by itself."""

    def __init__(
        self, target: Target, train_job: TrainJob, display: Display, signals: asyncio.Queue[signal.Signals]
    ) -> None:
        self._target = target
        self._train_job = train_job
        self._display = display
        self._signals = signals
        self.signal_received: signal.Signals | None = None
        self._lines_shown = 0
        self._has_ended = False

    async def follow(self) -> TrainJob:
        """Show the job until it ends or is suspended, and return it. Raises NotFound if it is deleted."""
        output = asyncio.create_task(self._show_output(), name="output")
        stopper = asyncio.create_task(self._stop_on_signal(), name="stop")
        watcher = asyncio.create_task(self._watch(), name="watch job")
        ticker = asyncio.create_task(self._tick(), name="tick")
        tasks = {output, stopper, watcher, ticker}
        try:
            waiting = set(tasks)
            while watcher in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # the first error of any of them ends the command
            await self._target.wait_until_idle(self._train_job.metadata)
            await self._wait_for_last_output(output)
            return watcher.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_last_output(self, output: asyncio.Task[None]) -> None:
        shown = -1
        while not output.done() and self._lines_shown != shown:
            shown = self._lines_shown
            await asyncio.wait({output}, timeout=_LAST_OUTPUT_SECONDS)
            if self.signal_received is not None:
                return
        if output.done():
            output.result()

    async def _watch(self) -> TrainJob:
        key = build_key(self._train_job)
        async for seen in watch_train_job(self._target, key):
            if seen is None:
                raise NotFound(key.kind, key.name, "it was deleted meanwhile")
            self._display.show_job(seen)
            if is_finished(seen) or get_phase(seen) == "Suspended":
                self._has_ended = True
                return seen
        raise NotFound(key.kind, key.name)

    async def _tick(self) -> None:
        while True:
            self._display.tick()
            await asyncio.sleep(_TICK_SECONDS)

    async def _show_output(self) -> None:
        async for line in self._target.read_logs(self._train_job, LogRequest(follow=True), self._display.say):
            self._display.show_output(line)
            self._lines_shown += 1

    async def _stop_on_signal(self) -> None:
        self.signal_received = await self._signals.get()
        if not self._has_ended:
            self._display.say(f"stopping {self._train_job.metadata.name}; ctrl-C again kills it")
            await request_stop(self._target, self._train_job)
        await self._signals.get()
        self._display.say(f"killing {self._train_job.metadata.name}")
        await self._target.kill(self._train_job)
