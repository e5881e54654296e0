"""The authority that vouches for the status server: followed, and kept in a ConfigMap of each job that runs.

    Secret of the certificate, `ca.crt`      followed by every replica
    ConfigMap `<job>-tls-config`             made with the JobSet (render), from then on kept here

A ConfigMap that was edited or deleted is put right, and a new authority reaches every pod that runs, as fast
as its kubelet looks. Where nothing differs nothing is written, not even at a restart: the ConfigMaps are
watched, and of each only a hash is kept. Source: spec 03 section 1.3.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from trainwright.api.constants import FIELD_MANAGER, TRAIN_JOB
from trainwright.api.core import ConfigMap
from trainwright.api.meta import Json, ObjectKey, ObjectMeta, is_controlled_by
from trainwright.api.progress import AUTHORITY_KEY, AUTHORITY_LABEL, AUTHORITY_SUFFIX
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.informer import Informer, Selection
from trainwright.cluster.kube.queue import Priority
from trainwright.cluster.kube.store import Difference
from trainwright.cluster.kube.transport import Transport
from trainwright.operator.caches import Caches
from trainwright.operator.controller import Controller
from trainwright.operator.followed_object import Place, follow_object
from trainwright.operator.metrics import Metrics
from trainwright.operator.stored import Body, open_job_set
from trainwright.render import render_authority

log = structlog.get_logger(__name__)

NAME: Final = "progress_authority_controller"
# A job that just began has its ConfigMap, which the watch may not show yet.
SETTLE_SECONDS: Final = 5.0

_CONFIG_MAPS: Final = msgspec.json.Decoder(ConfigMap)


class StoredAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """The ConfigMap of a job, with the hash of its certificates."""

    metadata: ObjectMeta
    digest: bytes


class Authority:
    """The CA certificates of the Secret, as PEM, and their hash; None while nobody knows them.

    `is_known` is set once it was looked, whether there are any or not.
    """

    def __init__(self, transport: Transport, secret: Place) -> None:
        self.secret = secret
        self.pem: str | None = None
        self.digest = b""
        self.is_known = asyncio.Event()
        self._transport = transport
        self._handlers: list[Callable[[], None]] = []

    def add_handler(self, handler: Callable[[], None]) -> None:
        """Call `handler` after every change of `pem`."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """Follow the Secret until cancelled."""
        async with aclosing(follow_object(self._transport, self.secret)) as states:
            async for secret in states:
                self._see(read_authority(secret))

    def _see(self, pem: str | None) -> None:
        is_other = pem != self.pem
        self.pem, self.digest = pem, _hash(pem or "")
        self.is_known.set()
        if is_other:
            log.info("the authority of the status server changed", secret=str(self.secret))
            for handler in self._handlers:
                handler()


class AuthorityController:
    """Keeps the ConfigMaps of jobs that run. The watch runs on every replica, `run` on the leader."""

    def __init__(
        self,
        caches: Caches,
        cluster: KubeCluster,
        authority: Authority,
        config_maps: Informer[StoredAuthority],
        metrics: Metrics,
    ) -> None:
        self._caches = caches
        self._cluster = cluster
        self._authority = authority
        self._config_maps = config_maps
        self._controller = Controller(NAME, self._reconcile, 1, metrics)
        authority.add_handler(self._hear_authority)
        config_maps.add_handler(self._hear_config_map)
        caches.add_wake(self._hear_job)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set."""
        await self._config_maps.synced.wait()
        await self._controller.run(self._list_keys, stopping)

    def _list_keys(self) -> Iterable[ObjectKey]:
        return (key for key in self._caches.list_train_job_keys() if self._find_fault(key) is not None)

    def _hear_authority(self) -> None:
        for key in self._caches.list_train_job_keys():
            self._controller.enqueue(key, Priority.RESYNC)

    def _hear_job(self, key: ObjectKey, priority: Priority, delay_seconds: float) -> None:
        del priority, delay_seconds  # those of a reconcile, which is more urgent
        if self._find_fault(key) is not None:
            self._controller.enqueue(key, delay_seconds=SETTLE_SECONDS)

    def _hear_config_map(self, difference: Difference[StoredAuthority]) -> None:
        namespace, name = difference.key
        self._controller.enqueue(ObjectKey(TRAIN_JOB, namespace, name.removesuffix(AUTHORITY_SUFFIX)))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        wanted = self._find_fault(key)
        if wanted is not None:
            await self._cluster.apply(wanted, FIELD_MANAGER)
            log.info("put the authority into a ConfigMap", namespace=key.namespace, name=key.name)
        return None

    def _find_fault(self, key: ObjectKey) -> Json | None:
        """Return the ConfigMap that a running job lacks; None where it has it, or is not one to have it."""
        pem = self._authority.pem
        present = self._config_maps.store.get(key.namespace, f"{key.name}{AUTHORITY_SUFFIX}")
        if pem is None or (present is not None and present.digest == self._authority.digest):
            return None
        job = self._caches.train_jobs.store.get(key.namespace, key.name)
        job_set = self._caches.job_sets.store.get(key.namespace, key.name)
        if job is None or job.has_ended or job_set is None:
            return None
        if not is_controlled_by(job_set.metadata, job.metadata) or open_job_set(job_set).spec.suspend:
            return None
        return render_authority(TrainJob(metadata=job.metadata), pem)


def build_authority_informer(transport: Transport, namespace: str | None) -> Informer[StoredAuthority]:
    """Return the watch of the ConfigMaps, of one namespace or, where none is given, of all."""
    selection = Selection(namespace=namespace, labels={AUTHORITY_LABEL: "true"})
    return Informer(transport, "ConfigMap", decode_authority, selection=selection)


def decode_authority(body: Body) -> StoredAuthority:
    """Return what is kept of a ConfigMap."""
    config_map = _CONFIG_MAPS.decode(body)
    metadata = config_map.metadata
    return StoredAuthority(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        ),
        digest=_hash((config_map.data or {}).get(AUTHORITY_KEY, "")),
    )


def read_authority(secret: Json | None) -> str | None:
    """Return the CA certificates in a Secret, None where there are none."""
    encoded = ((secret or {}).get("data") or {}).get(AUTHORITY_KEY) or ""
    try:
        return base64.b64decode(encoded, validate=True).decode() or None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _hash(pem: str) -> bytes:
    return hashlib.sha256(pem.encode()).digest()
