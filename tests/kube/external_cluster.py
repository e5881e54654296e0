"""A cluster that somebody else runs (`TRAINWRIGHT_TEST_KUBECONFIG`), in the place of a control plane of ours.

It is a guest there. Tests work in namespaces that they make. What belongs to the whole cluster and was made
through it is deleted with it; what was there before (our CRDs, for example) is used as it is. Users are
service accounts in a namespace of its own. What only the owner of a control plane can do (stop the API
server, make etcd forget) skips the test that asks for it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.credentials import CredentialSource
from trainwright.cluster.kube.transport import build_ssl_context
from trainwright.manifests.names import OPERATOR

PATIENCE_SECONDS = 60.0
TOKEN_SECONDS = 6 * 3600
_REVIEWS = ("tokenreviews", "subjectaccessreviews")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ExternalCluster:
    """A cluster that a kubeconfig of an administrator names. Use as a context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._made: list[str] = []
        self.prefix = f"trainwright-test-{uuid.uuid4().hex[:6]}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="trainwright-kube-"))
        connection = load_connection({"KUBECONFIG": str(self._kubeconfig)}, Path.home())
        self.server = connection.server
        source = CredentialSource(connection, time.monotonic, _get_now)
        with ThreadPoolExecutor(1) as thread:  # a test may have a loop of its own
            credential = thread.submit(asyncio.run, source.get_credential()).result()
        self._authorization = credential.authorization
        self._context = build_ssl_context(connection, credential)
        self._ca_pem = connection.ca_pem
        if not self._exists("/apis/jobset.x-k8s.io/v1alpha2"):
            pytest.skip(f"NOT TESTED: {self.server} has no JobSet, which TrainJobs run as")
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.prefix}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in reversed(self._made):
            with contextlib.suppress(urllib.error.HTTPError):  # gone already
                self.call("DELETE", path)
        shutil.rmtree(self._folder)

    def __getattr__(self, name: str) -> Any:
        """Skip the test that asks for what only the owner of a control plane has."""
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"NOT TESTED on {self.server}: needs a control plane of its own ({name})")

    def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Any:
        """Send one request as administrator and return the decoded answer. Raises urllib.error.HTTPError."""
        headers = {"Content-Type": content_type}
        if self._authorization:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
            made = json.load(answer)
        if method == "POST" and _is_of_the_whole_cluster(path):
            self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the kubeconfig of the administrator, or of a service account of that name."""
        if user == "admin":
            return self._kubeconfig
        path = self._folder / f"{user}.kubeconfig"
        if not path.exists():
            accounts = f"/api/v1/namespaces/{self.prefix}/serviceaccounts"
            self.call("POST", accounts, {"metadata": {"name": user}})
            asked = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
            token = self.call("POST", f"{accounts}/{user}/token", asked)["status"]["token"]
            cluster: dict[str, Any] = {"server": self.server}
            if self._ca_pem is not None:
                cluster["certificate-authority-data"] = base64.b64encode(self._ca_pem).decode()
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": token}}],
            }
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(config))
        return path

    def get_subject(self, user: str) -> dict[str, str]:
        """Return the user as the subject of a binding."""
        return {"kind": "ServiceAccount", "namespace": self.prefix, "name": user}

    def install_crds(self, crds: list[dict[str, Any]]) -> None:
        """Create the CRDs that are not there and wait until they are served; others stay as they are."""
        for crd in crds:
            name = crd["metadata"]["name"]
            if not self._exists(f"{_CRDS}/{name}"):
                self.call("POST", _CRDS, crd)
            self.wait_for(name, functools.partial(self._is_established, name))

    def check_no_operator(self) -> None:
        """Skip the test where an operator is at work: two would work on the same TrainJobs."""
        found = self.call("GET", f"/apis/apps/v1/deployments?fieldSelector=metadata.name%3D{OPERATOR}")
        for deployment in found["items"]:
            if deployment["spec"].get("replicas", 1):
                namespace = deployment["metadata"]["namespace"]
                pytest.skip(
                    f"NOT TESTED: an operator is at work on {self.server}; let it rest meanwhile: "
                    f"kubectl -n {namespace} scale deployment {OPERATOR} --replicas 0"
                )

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} is not ready on {self.server}")
            time.sleep(0.1)

    def _exists(self, path: str) -> bool:
        try:
            self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise
        return True

    def _is_established(self, name: str) -> bool:
        conditions = self.call("GET", f"{_CRDS}/{name}").get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _is_of_the_whole_cluster(path: str) -> bool:
    return "/namespaces/" not in path and not path.endswith(_REVIEWS)


def _get_now() -> datetime:
    return datetime.now(UTC)
