"""What the configuration file says about requests is what the process does."""

from __future__ import annotations

import asyncio

from kube.operating import SILENT, People, operating, runtime, train_job
from trainwright.cluster.kube.config import Connection
from trainwright.operator.configuration import ClientConnectionSettings, Configuration

JOBS = 6


async def test_a_configured_rate_is_kept(people: People, operator_connection: Connection) -> None:
    """One at once and four a second after it, per kind of object: six jobs take more than a second."""
    await people.create(runtime())
    limits = ClientConnectionSettings(qps=4.0, burst=1)
    configuration = Configuration(**SILENT, client_connection=limits)
    async with operating(operator_connection, people.namespace, configuration=configuration) as running:
        started = asyncio.get_running_loop().time()
        for number in range(JOBS):
            await people.create(train_job(f"job-{number}", suspend=True))
        for number in range(JOBS):
            await people.until_phase("Suspended", f"job-{number}")
        assert asyncio.get_running_loop().time() - started > (JOBS - 1) / 4.0
        statuses = [write for write in running.transport.writes if write.endswith("/status")]
        assert len(statuses) == JOBS
