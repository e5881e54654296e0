"""The operator as a process: what runs in it, in which order it starts, and how it ends.

    every replica     caches, probes, metrics, webhooks; progress reports where their gate is on
    the leader        controllers

It does not begin where the definitions on the cluster are older than it is (exit code 1). It is ready once
its caches are filled and its servers listen, leader or not. SIGTERM and ctrl-C stop it: workers finish what
they hold, the lease is released, and the exit code is 0. A lease that is lost ends it at once with exit code
1: somebody else may act from then on. Anything else that breaks ends it too; whoever runs the process starts
it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog

from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    FIELD_MANAGER,
    GROUP,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.flow import LimitedTransport
from trainwright.cluster.kube.leader import LeaderElection, LeaseLost, LeaseSettings
from trainwright.cluster.kube.transport import AiohttpTransport, AnswerListener, Transport
from trainwright.frameworks import FRAMEWORKS, Framework
from trainwright.operator.admission_server import AdmissionServer
from trainwright.operator.caches import Caches
from trainwright.operator.configuration import Configuration, parse_bind_address
from trainwright.operator.durations import parse_duration_seconds
from trainwright.operator.installed_schema import SchemaOutdated, check_schemas
from trainwright.operator.job_metrics import JobMetrics
from trainwright.operator.metrics import Metrics
from trainwright.operator.metrics_access import MetricsAccess
from trainwright.operator.profiling import Profiler
from trainwright.operator.progress import GATE, Progress, Scope, build_render
from trainwright.operator.progress_authority import AuthorityController
from trainwright.operator.runtimes import RuntimeController
from trainwright.operator.servers import Check, Server, build_health_app, build_metrics_app
from trainwright.operator.serving import bound_tls_buffers
from trainwright.operator.train_jobs import TrainJobController

log = structlog.get_logger(__name__)

LEASE_LOST_EXIT_CODE: Final = 1
SCHEMA_OUTDATED_EXIT_CODE: Final = 1

Clock = Callable[[], datetime]
Work = Callable[[], Awaitable[None]]
Connect = Callable[[Connection, AnswerListener], contextlib.AbstractAsyncContextManager[Transport]]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    `namespace` is the one to watch, None for all; `identity` tells this replica from others; `frameworks` are
    those that runtimes may choose.
    """

    configuration: Configuration
    connection: Connection
    identity: str
    namespace: str | None = None
    frameworks: tuple[Framework, ...] = FRAMEWORKS


async def run_operator(settings: Settings) -> int:
    """Run until stopped by a signal; return the exit code."""
    bound_tls_buffers()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, Profiler(loop).begin)
    exit_code = 0
    try:
        await Operator(settings).run(stopping)
    except* LeaseLost as lost:
        log.error("lost the lease: somebody else may lead", error=str(lost.exceptions[0]))
        exit_code = LEASE_LOST_EXIT_CODE
    except* SchemaOutdated as outdated:
        log.error("refusing to start", error=str(outdated.exceptions[0]))
        exit_code = SCHEMA_OUTDATED_EXIT_CODE
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            loop.remove_signal_handler(number)
    return exit_code


class Operator:
    """One replica. `connect` makes the transport, for those who want to see what is sent."""

    def __init__(
        self, settings: Settings, connect: Connect = AiohttpTransport, clock: Clock | None = None
    ) -> None:
        self.metrics = Metrics()
        self._settings = settings
        self._configuration = settings.configuration
        self._connect = connect
        self._clock = clock or _get_now
        self._knows_schemas = False
        self.is_leading = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set. Raises an ExceptionGroup, with LeaseLost in it when the lease is."""
        connection = self._settings.connection
        host = urlsplit(connection.server).netloc
        log.info("starting", server=connection.server, identity=self._settings.identity)
        async with self._connect(
            connection, lambda method, status: self.metrics.count_answer(host, method, status)
        ) as transport:
            # The lease and the certificate have no client-side limit, however busy the workers are.
            limited = self._limit(transport)
            caches = Caches(limited, self._settings.namespace)
            cluster = KubeCluster(limited, FIELD_MANAGER)
            JobMetrics(caches, self.metrics, self._clock)
            progress = self._build_progress(caches, transport)
            train_jobs = self._build_train_job_controller(caches, cluster, progress)
            controllers: list[TrainJobController | RuntimeController | AuthorityController] = [
                train_jobs,
                *self._build_runtime_controllers(caches, cluster),
            ]
            if progress is not None:
                controllers.append(progress.controller)
                progress.authority.add_handler(train_jobs.look_at_all)
            admission = AdmissionServer(
                self._configuration,
                train_jobs.source,
                cluster,
                self._clock,
                self.metrics,
                self._settings.frameworks,
            )

            async def work() -> None:
                # What was just loaded lives long: the collector need not walk through it again and again.
                gc.collect()
                gc.freeze()
                if progress is not None:
                    await progress.wait_for_authority()
                async with asyncio.TaskGroup() as group:
                    for controller in controllers:
                        group.create_task(controller.run(stopping), name=type(controller).__name__)

            async with self._serve(caches, admission, cluster, progress), asyncio.TaskGroup() as group:
                background = [
                    group.create_task(caches.run(), name="caches"),
                    group.create_task(
                        admission.keep_certificates(transport, connection.namespace), name="certificates"
                    ),
                ]
                if progress is not None:
                    background.append(group.create_task(progress.run(stopping), name="progress"))
                leading = group.create_task(self._lead(transport, caches, work), name="lead")
                await stopping.wait()
                log.info("stopping")
                if not self.is_leading:
                    leading.cancel()
                await asyncio.wait([leading])
                for task in background:
                    task.cancel()
        log.info("stopped")

    async def _lead(self, transport: Transport, caches: Caches, work: Work) -> None:
        """Do the work once the caches are filled, and only while this replica leads."""
        await check_schemas(transport)
        self._knows_schemas = True
        await caches.wait_until_synced()
        log.info("caches are filled", train_jobs=len(caches.train_jobs.store))
        gauge = self.metrics.is_leader.labels(self._lease_name)

        async def lead() -> None:
            self.is_leading = True
            gauge.set(1)
            try:
                await work()
            finally:
                gauge.set(0)

        gauge.set(0)
        lease = self._build_lease_settings()
        if lease is None:
            await lead()
        else:
            election = LeaderElection(transport, lease, self._settings.identity, self._clock)
            await election.lead(lead)

    @contextlib.asynccontextmanager
    async def _serve(
        self, caches: Caches, admission: AdmissionServer, cluster: KubeCluster, progress: Progress | None
    ) -> AsyncIterator[None]:
        """Serve probes, metrics, webhooks and progress reports."""
        health, metrics = self._configuration.health, self._configuration.metrics
        probes: dict[str, dict[str, Check]] = {
            health.readiness_endpoint_name.strip("/"): {
                "readyz": _ping,
                "definitions": self._check_definitions,
                "caches": _build_cache_check(caches),
                "webhooks": admission.check,
            },
            # Nothing but the event loop: a slow certificate must not get the process killed.
            health.liveness_endpoint_name.strip("/"): {"healthz": _ping},
        }
        if progress is not None:
            # The certificate is that of the webhooks; liveness does not depend on it.
            probes[health.readiness_endpoint_name.strip("/")]["status-server-readyz"] = admission.check
        async with contextlib.AsyncExitStack() as stack:
            if (address := parse_bind_address(health.health_probe_bind_address)) is not None:
                await stack.enter_async_context(Server(build_health_app(probes), *address))
            if (address := parse_bind_address(metrics.bind_address)) is not None:
                access = MetricsAccess(cluster, asyncio.get_running_loop().time)
                authorize = access.authorize if metrics.auth.enabled else None
                context = admission.slot.context if metrics.secure_serving else None
                app = build_metrics_app(self.metrics.registry, authorize)
                await stack.enter_async_context(Server(app, *address, context))
            await stack.enter_async_context(admission.build_server())
            if progress is not None:
                stack.push_async_callback(progress.reports.flush)
                await stack.enter_async_context(progress.build_server(admission.slot.context))
            yield

    async def _check_definitions(self) -> str | None:
        return None if self._knows_schemas else "waiting for the definitions of our kinds"

    def _build_progress(self, caches: Caches, transport: Transport) -> Progress | None:
        """Return what the gate turns on; its requests have limits of their own."""
        if not (self._configuration.feature_gates or {}).get(GATE):
            return None
        return Progress(
            self._configuration,
            transport,
            caches,
            self._clock,
            self.metrics,
            Scope(own=self._settings.connection.namespace, watched=self._settings.namespace),
        )

    def _build_train_job_controller(
        self, caches: Caches, cluster: KubeCluster, progress: Progress | None
    ) -> TrainJobController:
        workers = self._configuration.get_workers(f"{TRAIN_JOB}.{GROUP}")
        render = build_render(
            self._configuration,
            self._settings.connection.namespace,
            self._settings.frameworks,
            progress.authority if progress is not None else None,
        )
        return TrainJobController(caches, cluster, self._clock, workers, self.metrics, render)

    def _build_runtime_controllers(self, caches: Caches, cluster: KubeCluster) -> list[RuntimeController]:
        workers = self._configuration.get_workers
        return [
            RuntimeController(kind, caches, cluster, workers(f"{kind}.{GROUP}"), self.metrics)
            for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
        ]

    def _limit(self, transport: Transport) -> Transport:
        limits = self._configuration.client_connection
        if not limits.qps:
            return transport
        return LimitedTransport(transport, limits.qps, limits.burst or round(limits.qps))

    @property
    def _lease_name(self) -> str:
        settings = self._configuration.leader_election
        return settings.resource_name if settings is not None else ""

    def _build_lease_settings(self) -> LeaseSettings | None:
        settings = self._configuration.leader_election
        if settings is None or not settings.leader_elect:
            return None
        return LeaseSettings(
            name=settings.resource_name,
            namespace=settings.resource_namespace or self._settings.connection.namespace,
            duration_seconds=parse_duration_seconds(settings.lease_duration),
            renew_deadline_seconds=parse_duration_seconds(settings.renew_deadline),
            retry_seconds=parse_duration_seconds(settings.retry_period),
        )


def _get_now() -> datetime:
    return datetime.now(UTC)


async def _ping() -> str | None:
    return None


def _build_cache_check(caches: Caches) -> Check:
    async def check() -> str | None:
        missing = caches.list_unsynced()
        return f"waiting for the objects of {', '.join(missing)}" if missing else None

    return check
