"""Sends the ConfigMaps that carry a job's code, and makes them belong to the job.

They are there before the job, so that no pod waits for them, and are shared by all jobs with the same code:
each adds itself as an owner, and the garbage collector deletes them with the last one. Until the first owner
they belong to nobody; what a failed `run` has made itself, it takes away again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from trainwright.api.constants import API_VERSION, TRAIN_JOB
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.requests import build_create, build_delete, build_get, build_strategic_patch
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import AlreadyExists, Conflict, Forbidden, NotFound

_DECODER = msgspec.json.Decoder(dict[str, object])


class CarrierSender:
    """The ConfigMaps of one `run`."""

    def __init__(self, transport: Transport, carriers: Sequence[Json]) -> None:
        self._transport = transport
        self._carriers = carriers
        self._made: list[tuple[ObjectKey, str]] = []

    async def send(self) -> None:
        """Make those that are not there. Raises Forbidden, Conflict for one that holds something else."""
        try:
            for carrier in self._carriers:
                await self._create(carrier)
        except BaseException:
            await self.take_back()
            raise

    async def take_back(self) -> None:
        """Delete what was made here, where no job has it yet."""
        while self._made:
            key, uid = self._made.pop()
            with suppress(NotFound, Conflict):
                await self._transport.request(build_delete(key, uid))

    async def give_to(self, train_job: Json) -> None:
        """Make the job an owner of each; one that went meanwhile with its last owner is made again."""
        metadata = train_job["metadata"]
        owner = {
            "apiVersion": API_VERSION,
            "kind": TRAIN_JOB,
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        for carrier in self._carriers:
            change = {"metadata": {"ownerReferences": [owner]}}
            try:
                await self._transport.request(build_strategic_patch(_build_key(carrier), change))
            except NotFound:
                owned = {**carrier, "metadata": {**carrier["metadata"], **change["metadata"]}}
                await self._create(owned)

    async def _create(self, carrier: Json) -> None:
        key = _build_key(carrier)
        try:
            stored = _decode(await self._transport.request(build_create(carrier)))
        except AlreadyExists:
            await self._check_same(key, carrier)
        except Forbidden as error:
            raise Forbidden(
                f"{error}\nto send code along takes the right to create, get and patch configmaps; else use "
                "--code-volume, --code-url or --no-code"
            ) from error
        else:
            self._made.append((key, stored["metadata"]["uid"]))

    async def _check_same(self, key: ObjectKey, carrier: Json) -> None:
        """Make sure that what has our name is what we would have sent: its name is easily taken."""
        stored = _decode(await self._transport.request(build_get(key)))
        if stored.get("binaryData") != carrier["binaryData"]:
            raise Conflict(
                f"{key} is named like this code, but holds something else; delete it and try again"
            )


def _build_key(carrier: Json) -> ObjectKey:
    return ObjectKey("ConfigMap", carrier["metadata"]["namespace"], carrier["metadata"]["name"])


def _decode(body: bytes) -> Json:
    return dict(_DECODER.decode(body))
