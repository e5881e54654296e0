"""Progress on a cluster, put together: what the feature gate TrainJobStatus turns on.

render          pods get a token, the server's address and its authority     render.progress
every replica   takes reports, and writes them                               progress_server, _reports
the leader      keeps the authority in the ConfigMaps of jobs                progress_authority
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from trainwright.api.constants import FIELD_MANAGER
from trainwright.api.meta import Json
from trainwright.api.progress import AUTHORITY_KEY
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.resources import RESOURCES
from trainwright.cluster.kube.transport import Transport
from trainwright.control.lifecycle import Render, RenderChoice
from trainwright.frameworks import Framework
from trainwright.operator.caches import Caches
from trainwright.operator.configuration import Configuration
from trainwright.operator.followed_object import Place
from trainwright.operator.metrics import Metrics
from trainwright.operator.progress_access import ProgressAccess
from trainwright.operator.progress_authority import Authority, AuthorityController, build_authority_informer
from trainwright.operator.progress_reports import ProgressReports
from trainwright.operator.progress_server import StatusServer
from trainwright.operator.servers import Server
from trainwright.render import AuthorityUnknown, ProgressServer
from trainwright.render import render as render_train_job

GATE: Final = "TrainJobStatus"
IDLE_SECONDS: Final = 120.0
AUTHORITY_SECONDS: Final = 10.0


def build_render(
    configuration: Configuration,
    namespace: str,
    frameworks: Sequence[Framework],
    authority: Authority | None,
) -> Render:
    """Return how this operator, which runs in `namespace`, renders; `authority` is None without the gate.

    A suspended JobSet from before a switch of the gate is resumed as it was made.
    """
    plain = partial(render_train_job, frameworks=frameworks)
    service = configuration.cert_management.webhook_service_name
    url = f"https://{service}.{namespace}.svc:{configuration.status_server.port}"
    if authority is None:
        # The ConfigMap of such a job is there, as old as it is.
        return RenderChoice(plain, (partial(plain, progress=ProgressServer(url=url)),))

    def render_reporting(job: TrainJob, runtime: Runtime) -> list[Json]:
        if authority.pem is None:
            raise AuthorityUnknown(str(authority.secret), AUTHORITY_KEY)
        return plain(job, runtime, progress=ProgressServer(url=url, authority_pem=authority.pem))

    return RenderChoice(render_reporting, (plain,))


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The namespace that the operator runs in, and the one whose jobs it looks after, None for all."""

    own: str
    watched: str | None = None


class Progress:
    """The parts, in a process that has the gate on."""

    def __init__(
        self,
        configuration: Configuration,
        transport: Transport,
        caches: Caches,
        clock: Callable[[], datetime],
        metrics: Metrics,
        scope: Scope,
    ) -> None:
        self._configuration = configuration
        settings = configuration.status_server
        limits = (settings.qps, settings.burst)
        cluster = KubeCluster(transport, FIELD_MANAGER)
        secret = configuration.cert_management.webhook_secret_name
        place = Place(resource=RESOURCES["Secret"], namespace=scope.own, name=secret)
        self.authority = Authority(transport, place)
        self._config_maps = build_authority_informer(transport, scope.watched)
        self.controller = AuthorityController(caches, cluster, self.authority, self._config_maps, metrics)
        self.reports = ProgressReports(caches, transport, clock, metrics, limits)
        access = ProgressAccess(caches, cluster, clock, *limits)
        self._app = StatusServer(access, self.reports, clock, metrics.count_report).build_app()

    def build_server(self, context: ssl.SSLContext) -> Server:
        """Return the server of reports."""
        # There is no setting of its own for the address: it listens where the webhooks do.
        host = self._configuration.webhook.host or None
        port = self._configuration.status_server.port
        return Server(self._app, host, port, context, idle_seconds=IDLE_SECONDS)

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow and write until cancelled, on every replica."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.authority.run(), name="progress-authority")
            group.create_task(self._config_maps.run(), name="informer-progress-authority")
            group.create_task(self.reports.run(stopping), name="progress-reports")

    async def wait_for_authority(self) -> None:
        """Wait until it was looked for, but not for ever: jobs say it themselves if it is missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AUTHORITY_SECONDS):
                await self.authority.is_known.wait()
