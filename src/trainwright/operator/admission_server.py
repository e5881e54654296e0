"""The webhooks as the process serves them: with a certificate, from the caches, measured.

The certificate is made and renewed by the process, shared by all replicas and made known to the API server;
or it comes from outside, in files, where the configuration turns that off.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Final

import structlog

from trainwright.api.encoding import parse_object
from trainwright.api.meta import ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.observe import RUNTIME_KINDS
from trainwright.errors import NotFound, UsageError
from trainwright.frameworks import FRAMEWORKS, Framework
from trainwright.operator.cache_source import CacheSource
from trainwright.operator.certificate_files import follow_files
from trainwright.operator.configuration import Configuration
from trainwright.operator.metrics import Metrics
from trainwright.operator.servers import Server
from trainwright.operator.serving import CertificateSlot, read_tls_settings
from trainwright.operator.webhooks import Webhooks

log = structlog.get_logger(__name__)

# Below the folder for temporary files, where the peer looks for a certificate that is given to it.
CERTIFICATE_FOLDER: Final = Path("k8s-webhook-server") / "serving-certs"


class AdmissionServer:
    """The webhooks, and the certificate that every server of the process uses."""

    def __init__(
        self,
        configuration: Configuration,
        source: CacheSource,
        cluster: KubeCluster,
        clock: Callable[[], datetime],
        metrics: Metrics,
        frameworks: tuple[Framework, ...] = FRAMEWORKS,
    ) -> None:
        options, warnings = read_tls_settings(configuration.tls)
        for warning in warnings:
            log.warning("TLS setting has no effect", problem=warning)
        self.slot = CertificateSlot(options)
        self._configuration = configuration
        self._cluster = cluster
        self._clock = clock
        self._webhooks = Webhooks(
            source, self._read_runtime, clock, metrics.count_review, frameworks=frameworks
        )
        self._ready = asyncio.Event()

    def build_server(self) -> Server:
        """Return the server of the webhooks."""
        webhook = self._configuration.webhook
        return Server(self._webhooks.build_app(), webhook.host or None, webhook.port, self.slot.context)

    async def keep_certificates(self, transport: Transport, namespace: str) -> None:
        """Keep a good certificate in place until cancelled; `namespace` is the operator's own."""
        settings = self._configuration.cert_management
        if not settings.enable:
            await follow_files(self.slot, Path(tempfile.gettempdir()) / CERTIFICATE_FOLDER, self._ready)
            return
        keeper_module = _import_keeper()
        names = keeper_module.CertificateSettings(
            namespace=namespace,
            service_name=settings.webhook_service_name,
            secret_name=settings.webhook_secret_name,
        )
        keeper = keeper_module.CertificateKeeper(transport, names, self.slot, self._clock)
        self._ready = keeper.ready
        await keeper.run()

    async def check(self) -> str | None:
        """Say what keeps the API server from calling the webhooks; None where nothing does."""
        return None if self._ready.is_set() else "no certificate that the API server trusts is served yet"

    async def _read_runtime(self, key: ObjectKey) -> Runtime | None:
        try:
            return parse_object(await self._cluster.get(key), RUNTIME_KINDS[key.kind])
        except NotFound:
            return None


def _import_keeper() -> ModuleType:
    """Return the module that keeps certificates, which needs a package that nothing else does."""
    try:
        from trainwright.operator import certificates_keeper
    except ImportError as error:
        raise UsageError(
            f"the operator needs the package {error.name!r}: pip install 'trainwright[operator]'"
        ) from error
    return certificates_keeper
