"""See one TrainJob change until the caller has seen enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import is_finished
from trainwright.cli.targets import Target
from trainwright.cluster.port import Change, ChangeType, Expired
from trainwright.errors import NotFound

_SETTLE_SECONDS = 1.0


async def watch_train_job(target: Target, key: ObjectKey) -> AsyncGenerator[TrainJob | None, None]:
    """Yield the job as it is and again after each change; None, as the last item, once it is deleted.

    One that ended and was deleted between two looks, as with a time to live of no seconds, is yielded as it
    was in the end before the None.
    A job of the same name that is made later is another job: it is not followed. While nothing changes the
    target is asked to settle, so that a job whose supervisor died is not waited for.
    """
    uid = None
    while True:
        try:
            body = await target.cluster.get(key)
        except NotFound:
            yield None
            return
        train_job = parse_object(body, TrainJob)
        if uid is not None and train_job.metadata.uid != uid:
            yield None
            return
        uid = train_job.metadata.uid
        yield train_job
        version = train_job.metadata.resource_version or ""
        try:
            async for change in _watch_and_settle(target, key.namespace, version):
                if change.object["metadata"]["name"] != key.name:
                    continue
                is_same = change.object["metadata"].get("uid") == uid
                if is_same and change.type is not ChangeType.DELETED:
                    yield parse_object(change.object, TrainJob)
                    continue
                if is_same and is_finished(last := parse_object(change.object, TrainJob)):
                    yield last
                yield None
                return
        except Expired:
            continue  # so much happened elsewhere that the history is gone: start from what is


async def _watch_and_settle(target: Target, namespace: str, version: str) -> AsyncIterator[Change]:
    changes = target.cluster.watch([TRAIN_JOB], namespace, version)

    async def _next() -> Change | None:
        return await anext(changes, None)

    pending = asyncio.create_task(_next(), name="watch")
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=_SETTLE_SECONDS)
            if not done:
                await target.settle()
                continue
            change = pending.result()
            if change is None:
                return
            yield change
            pending = asyncio.create_task(_next(), name="watch")
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        if (close := getattr(changes, "aclose", None)) is not None:
            await close()
