"""The status server over a real connection: what clients are told, and what they make of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from reports import NOW, Api, build_caches, build_token, clock
from trainwright.api.constants import FIELD_MANAGER
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.errors import ForbiddenError, Status
from trainwright.operator.metrics import Metrics
from trainwright.operator.progress_access import FORBIDDEN_SECONDS, ProgressAccess
from trainwright.operator.progress_reports import ProgressReports
from trainwright.operator.progress_server import StatusServer
from trainwright.operator.servers import Server
from trainwright.progress.endpoint import Endpoint, Unavailable

BODY = {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": NOW.isoformat()}}


def build_environment(port: int, folder: Path) -> dict[str, str]:
    """What a pod of the job has, but for TLS."""
    (folder / "token").write_text(build_token())
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/demo/status"
    return {
        "KUBEFLOW_TRAINER_SERVER_URL": f"http://127.0.0.1:{port}{path}",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token"),
    }


def build_app(api: Api, codes: list[int]) -> web.Application:
    caches = build_caches(api)
    access = ProgressAccess(caches, KubeCluster(api, FIELD_MANAGER), clock, 0.0, 0)
    reports = ProgressReports(caches, api, clock, Metrics(), (0.0, 0))
    return StatusServer(access, reports, clock, codes.append).build_app()


async def test_a_client_tries_again_where_the_operator_may_not_check_who_reports(tmp_path: Path) -> None:
    """It says what is missing, which is no fault of the job; 403 would tell the client to give up."""
    api, codes = Api(), list[int]()
    api.errors = [ForbiddenError(Status(code=403, reason="Forbidden", message="no"))]
    async with Server(build_app(api, codes), "127.0.0.1", 0) as server:
        endpoint = Endpoint(build_environment(server.port, tmp_path))
        with pytest.raises(Unavailable, match=r"HTTP 503 .*may not create tokenreviews") as told:
            await asyncio.to_thread(endpoint.post, BODY)
    assert told.value.retry_seconds == FORBIDDEN_SECONDS
    assert codes == [503]


async def test_a_report_is_taken(tmp_path: Path) -> None:
    api, codes = Api(), list[int]()
    async with Server(build_app(api, codes), "127.0.0.1", 0) as server:
        await asyncio.to_thread(Endpoint(build_environment(server.port, tmp_path)).post, BODY)
    assert codes == [200]
