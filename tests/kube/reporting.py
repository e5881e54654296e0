"""An operator that takes reports of progress, and what a pod of a job would have to send them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kube.control_plane import ControlPlane, find_free_ports
from kube.operating import SILENT, People, Running, eventually, operating, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.sockets import OneSidedClose
from trainwright.manifests.names import CERTIFICATE_SECRET
from trainwright.operator.configuration import Configuration, StatusServerSettings, WebhookSettings
from trainwright.progress.endpoint import Endpoint

ACCOUNT = "trainer"
PATIENT = 60.0


class Playground:
    """An operator with the gate on, and what a pod of a job would have."""

    def __init__(self, plane: ControlPlane, people: People, port: int, folder: Path) -> None:
        self.plane = plane
        self.people = people
        self.port = port
        self.folder = folder
        self.authority = plane.folder / "pki/hook/tls.crt"
        self.trusting = ssl.create_default_context(cafile=str(self.authority))
        self.trusting.sslobject_class = OneSidedClose
        self.connection: Connection
        self.running: Running

    def audience(self, name: str = "demo") -> str:
        return f"trainer.kubeflow.org/v1alpha1/namespaces/{self.people.namespace}/trainjobs/{name}/status"

    def url(self, name: str = "demo") -> str:
        return f"https://127.0.0.1:{self.port}/apis/{self.audience(name)}"

    def issue(self, pod: Json | None, audience: str | None = None) -> str:
        """A token of the account, bound to a pod where one is given, as a kubelet gets it."""
        spec: Json = {"audiences": [audience or self.audience()], "expirationSeconds": 600}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        account = f"/api/v1/namespaces/{self.people.namespace}/serviceaccounts/{ACCOUNT}"
        answer = self.plane.call("POST", f"{account}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def build_environment(self, token: str, name: str = "demo") -> dict[str, str]:
        """The variables of a pod, and the files that they name."""
        (self.folder / "token").write_text(token)
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": self.url(name),
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.authority),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.folder / "token"),
        }

    async def report(self, token: str, percent: int, name: str = "demo", **status: Any) -> None:
        """Report as a pod does. Raises Refused, Unavailable."""
        moment = datetime.now(UTC).isoformat()
        body = {"trainerStatus": {"progressPercentage": percent, "lastUpdatedTime": moment, **status}}
        await asyncio.to_thread(Endpoint(self.build_environment(token, name)).post, body)

    async def is_reported(self, percent: int, name: str = "demo") -> Json:
        status = await self.people.until_status(
            lambda status: (status.get("trainerStatus") or {}).get("progressPercentage") == percent, name
        )
        return status["trainerStatus"]  # type: ignore[no-any-return]

    @property
    def sent(self) -> list[str]:
        """What the operator sent because of reports: TokenReviews, and statuses by their own manager."""
        return [
            "TokenReview" if request.path.endswith("/tokenreviews") else "status"
            for request in self.running.transport.requests
            if request.path.endswith("/tokenreviews") or ("fieldManager", "trainer-status") in request.query
        ]


@asynccontextmanager
async def reporting_to(ground: Playground, connection: Connection) -> AsyncIterator[None]:
    """Run the operator until the block ends, from when it takes reports."""
    namespace = ground.people.namespace
    ground.connection = msgspec.structs.replace(connection, namespace=namespace)
    configuration = configure(ground.port)
    async with operating(ground.connection, namespace, configuration=configuration) as ground.running:
        await eventually(lambda: is_serving(ground))
        yield


def configure(port: int, *, is_on: bool = True) -> Configuration:
    settings: dict[str, Any] = {
        **SILENT,
        "webhook": WebhookSettings(host="127.0.0.1", port=find_free_ports(1)[0]),
        "status_server": StatusServerSettings(port=port),
        "feature_gates": {"TrainJobStatus": is_on},
    }
    return Configuration(**settings)


def build_secret(authority: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": CERTIFICATE_SECRET},
        "stringData": {"ca.crt": authority},
    }


async def is_serving(ground: Playground) -> bool:
    try:
        return (await ask(ground, "GET", "/", "")).code == 404
    except aiohttp.ClientError:
        return False


class Reply(msgspec.Struct):
    code: int
    body: Json
    headers: dict[str, str]


async def ask(ground: Playground, method: str, url: str, token: str, body: Any = b"") -> Reply:
    """One request as a script might send it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    where = url if url.startswith("https:") else f"https://127.0.0.1:{ground.port}{url}"
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, where, data=body, ssl=ground.trusting) as answer,
    ):
        return Reply(answer.status, json.loads(await answer.text()), dict(answer.headers))


async def start(ground: Playground, name: str = "demo") -> Json:
    """Start a job of one pod; return the pod."""
    await ground.people.create(train_job(name))
    [pod] = await ground.people.until_pods(1, name)
    return pod
