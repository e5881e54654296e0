"""Keeps the serving certificate good, on every replica: made, shared, trusted by the API server, renewed.

    Secret                        one for all replicas; whoever writes first wins, all serve what is in it
    webhook configurations        the CA stands in each of their webhooks, and is put back when it is lost
    CertificateSlot               what this process serves

Level-based: whenever one of the objects changes, twice a day, and at the start, what is there is compared
with what should be. Nothing is read for that: the objects are followed. Where certificates come from outside
(cert-manager, files) none of this runs (`certificate_files`).

API servers are told of a new CA before anything that it signed is served, in time to learn of it by watches
of their own, and go on trusting the one before: a renewal is noticed by nobody. Only who empties the Secret
gets everything new at once.
Source: spec 01 section 2.7.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.informer import Backoff
from trainwright.cluster.kube.requests import build_create
from trainwright.cluster.kube.resources import RESOURCES
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import AlreadyExists, Conflict, NotFound, TargetUnreachable
from trainwright.manifests.names import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from trainwright.operator.certificates import (
    Certificates,
    build_certificates,
    build_secret_data,
    find_fault,
    is_signed_by_former_ca,
    list_service_hosts,
    parse_secret,
)
from trainwright.operator.followed_object import Place, build_replace, follow_object
from trainwright.operator.serving import CertificateSlot

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 12 * 3600.0
# Between two renewals of what is there: two replicas whose clocks differ by months would else never stop.
RENEWAL_PAUSE_SECONDS: Final = 60.0
# From a new CA in the webhook configurations to a certificate that it signed.
SETTLE_SECONDS: Final = 10.0

CONFIGURATIONS: Final = (
    Place(resource=RESOURCES["MutatingWebhookConfiguration"], name=MUTATING_CONFIGURATION),
    Place(resource=RESOURCES["ValidatingWebhookConfiguration"], name=VALIDATING_CONFIGURATION),
)

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose certificate it is. `more_hosts` are further names or addresses of the server."""

    namespace: str
    service_name: str
    secret_name: str
    more_hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return every name that the certificate is for."""
        return (*list_service_hosts(self.service_name, self.namespace), *self.more_hosts)

    @property
    def secret(self) -> Place:
        """Return where the Secret stands."""
        return Place(resource=RESOURCES["Secret"], namespace=self.namespace, name=self.secret_name)


class CertificateKeeper:
    """Run it on every replica. `ready` is set once a certificate is served that the API server trusts."""

    def __init__(
        self,
        transport: Transport,
        settings: CertificateSettings,
        slot: CertificateSlot,
        clock: Callable[[], datetime],
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.ready = asyncio.Event()
        self._transport = transport
        self._settings = settings
        self._slot = slot
        self._clock = clock
        self._wake = asyncio.Event()
        self._seen: dict[Place, Json | None] = {}
        self._renewed_at: float | None = None
        self._settle_seconds = settle_seconds
        self._next: tuple[Certificates, float] | None = None  # to be served from then on

    async def run(self) -> None:
        """Keep the certificate good until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in (self._settings.secret, *CONFIGURATIONS):
                group.create_task(self._follow(place), name=f"follow-{place.name}")
            await self._keep()

    def check(self) -> None:
        """Look again, though nothing that is followed has changed."""
        self._wake.set()

    async def _follow(self, place: Place) -> None:
        async with aclosing(follow_object(self._transport, place)) as states:
            async for obj in states:
                self._seen[place] = obj
                self._wake.set()

    async def _keep(self) -> None:
        backoff = Backoff()
        pause = CHECK_SECONDS
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if len(self._seen) <= len(CONFIGURATIONS):
                continue  # not all of them are known yet
            try:
                pause = await self._reconcile() or CHECK_SECONDS
                backoff.reset()
            except (Conflict, AlreadyExists, NotFound):
                # Somebody was faster, and what they did is about to be seen; or it is not, and we look again.
                pause = backoff.next_pause()
            except (ApiError, TargetUnreachable) as error:
                pause = backoff.next_pause(getattr(error, "retry_after", None))
                log.warning("certificates cannot be kept", error=str(error), retry_seconds=round(pause, 2))

    async def _reconcile(self) -> float | None:
        """Bring everything in order, as far as it can be; return when to look again, None for no hurry."""
        certificates, pause = await self._provide()
        if certificates is None:
            return pause
        trusted = True
        for place in CONFIGURATIONS:
            trusted = await self._trust(place, certificates.ca_bundle) and trusted
        if (settling := self._settle(certificates)) > 0:
            return settling
        self._serve(certificates)
        if trusted and not self.ready.is_set():
            log.info("certificate is served and trusted", certificate=certificates.serving.fingerprint)
            self.ready.set()
        return pause

    async def _provide(self) -> tuple[Certificates | None, float | None]:
        """Return the certificates of the Secret, made or renewed where they have to be.

        Where it is too early to renew them again, those that are there are returned and for how long to wait.
        """
        place = self._settings.secret
        secret = self._seen[place]
        present = parse_secret(secret) if secret is not None else None
        if present is None:
            log.info("making certificates", secret=str(place))
        else:
            fault = find_fault(present, self._settings.hosts, self._clock())
            if fault is None:
                return present, None
            now = asyncio.get_running_loop().time()
            if self._renewed_at is not None and now - self._renewed_at < RENEWAL_PAUSE_SECONDS:
                log.error(
                    "certificates are not good though they were just renewed; do the clocks of the replicas "
                    "differ?",
                    secret=str(place),
                    fault=fault,
                )
                return present, self._renewed_at + RENEWAL_PAUSE_SECONDS - now
            log.info("renewing certificates", secret=str(place), fault=fault)
            self._renewed_at = now
        made = await asyncio.to_thread(build_certificates, self._settings.hosts, self._clock(), present)
        self._learn(place, secret, await self._store(secret, made))
        return made, None

    def _learn(self, place: Place, before: Json | None, written: Json) -> None:
        """Know what was written, unless the watch has told of it meanwhile, or of what came after it."""
        if self._seen[place] is before:
            self._seen[place] = written

    async def _store(self, secret: Json | None, certificates: Certificates) -> Json:
        """Write the Secret, unless somebody wrote it since it was seen. Raises Conflict, AlreadyExists."""
        data = build_secret_data(certificates)
        place = self._settings.secret
        if secret is None:
            metadata = {"namespace": place.namespace, "name": place.name}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
            return await self._send(build_create({**body, "data": data}))
        return await self._send(
            build_replace(
                place,
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    **secret,
                    "data": {**(secret.get("data") or {}), **data},
                },
            )
        )

    async def _trust(self, place: Place, ca_bundle: bytes) -> bool:
        """See to it that a webhook configuration names the CA; say whether it exists."""
        configuration = self._seen[place]
        if configuration is None:
            log.warning("webhook configuration is missing; `trainwright install` makes it", name=place.name)
            return False
        encoded = base64.b64encode(ca_bundle).decode()
        webhooks = [
            {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": encoded}}
            for webhook in configuration.get("webhooks") or ()
        ]
        if webhooks != (configuration.get("webhooks") or []):
            identity = {"apiVersion": place.resource.api_version, "kind": place.resource.kind}
            changed = {**identity, **configuration, "webhooks": webhooks}
            self._learn(place, configuration, await self._send(build_replace(place, changed)))
            log.info("put the CA into a webhook configuration", name=place.name)
        return True

    def _settle(self, certificates: Certificates) -> float:
        """Return for how many seconds what is served is served on: none, but after a change of the CA."""
        served = self._slot.certificate
        if served is None or served == certificates.serving:
            self._next = None
            return 0.0
        if not is_signed_by_former_ca(served, certificates.ca_bundle):
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._next is None or self._next[0] != certificates:
            self._next = (certificates, now + self._settle_seconds)
        return max(self._next[1] - now, 0.0)

    def _serve(self, certificates: Certificates) -> None:
        if self._slot.certificate != certificates.serving:
            self._slot.swap(certificates.serving)
            log.info("serving another certificate", certificate=certificates.serving.fingerprint)

    async def _send(self, request: Any) -> Json:
        answer: Mapping[str, Any] = _DECODER.decode(await self._transport.request(request))
        return dict(answer)
