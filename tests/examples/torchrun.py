"""Several torchrun "nodes" of one job on this machine, as the local engine starts them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from trainwright.runner.pods.ports import reserve_port

# A bound, not an expectation: ranks share two cores with the other tests, and a start alone may take long.
PATIENCE_SECONDS = 200


class Torchrun:
    """A job of `nodes` x `processes`. Output of node 0 is read line by line; the others' goes with it."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def wait_for_line(self, beginning: str) -> str:
        """Read up to the line that begins so, and return it."""
        output = self._processes[0].stdout
        assert output is not None
        seen = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await output.readline()).decode():
                seen.append(line)
                if line.startswith(beginning):
                    return line.rstrip("\n")
        raise AssertionError(f"no line begins with {beginning!r}:\n{''.join(seen)}")

    async def finish(self) -> str:
        """Wait until all nodes have ended well, and return what node 0 still had to say."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            outputs = await asyncio.gather(*(process.communicate() for process in self._processes))
        texts = [out.decode() for out, _ in outputs]
        assert [process.returncode for process in self._processes] == [0] * len(texts), "\n".join(texts)
        return texts[0]

    async def stop(self) -> None:
        """SIGTERM, as the engine does when a job is suspended, and SIGKILL to what does not end."""
        running = [process for process in self._processes if process.returncode is None]
        for process in running:
            process.terminate()
        ends = [asyncio.create_task(process.communicate()) for process in running]
        if ends:
            await asyncio.wait(ends, timeout=10)
        for process in running:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*ends)


@asynccontextmanager
async def run_torchrun(
    environment: Path, shape: tuple[int, int], words: list[str], variables: Mapping[str, str]
) -> AsyncIterator[Torchrun]:
    """Start `torchrun WORDS` as (nodes, processes per node) in a training environment; stop what is left."""
    nodes, processes = shape
    # Kept from tests that run at the same time, and not of those that systems give to connections.
    reserved = reserve_port(Path(tempfile.gettempdir()) / "trainwright-tests")
    common = {
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(reserved.port),
        **variables,
    }
    started = [
        await asyncio.create_subprocess_exec(
            environment / "bin" / "torchrun",
            *words,
            env={**common, "PET_NODE_RANK": str(node)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        for node in range(nodes)
    ]
    job = Torchrun(started)
    try:
        yield job
    finally:
        await job.stop()
        reserved.release()
