"""Real quotas on what the operator makes: the refusal is told, and the job goes on by itself once it may."""

from __future__ import annotations

import pytest

from kube.control_plane import ControlPlane
from kube.operating import People, condition, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

COUNTED_SECONDS = 75.0


class Quota:
    """A ResourceQuota of one kind of object, counted by the controller of Kubernetes."""

    def __init__(self, plane: ControlPlane, people: People, resource: str) -> None:
        self._plane = plane
        self._collection = f"/api/v1/namespaces/{people.namespace}/resourcequotas"
        self._resource = f"count/{resource}"

    async def set_up(self, count: int) -> None:
        spec = {"hard": {self._resource: str(count)}}
        self._plane.call("POST", self._collection, {"metadata": {"name": "small"}, "spec": spec})
        # The controller looks for new kinds twice a minute; until it counts, all is refused in other words.
        await eventually(lambda: self._is_counted(count), COUNTED_SECONDS)

    async def raise_to(self, count: int) -> None:
        patch = {"spec": {"hard": {self._resource: str(count)}}}
        self._plane.call("PATCH", f"{self._collection}/small", patch, "application/merge-patch+json")
        await eventually(lambda: self._is_counted(count))

    async def _is_counted(self, count: int) -> bool:
        status: Json = self._plane.call("GET", f"{self._collection}/small").get("status") or {}
        is_current = (status.get("hard") or {}).get(self._resource) == str(count)
        return is_current and self._resource in (status.get("used") or {})


def get_refusal(status: Json) -> str:
    refused = condition(status, "ResourcesCreated")
    return str(refused["message"]) if refused is not None else ""


@pytest.mark.parametrize(
    ("resource", "kind"), [("jobsets.jobset.x-k8s.io", "JobSet"), ("configmaps", "ConfigMap")]
)
async def test_a_quota_on_what_we_make_is_told_and_waited_for(
    control_plane: ControlPlane,
    people: People,
    operator_connection: Connection,
    resource: str,
    kind: str,
) -> None:
    """1. None may be made. 2. The status says whose quota it is. 3. The quota is raised. 4. The job runs."""
    quota = Quota(control_plane, people, resource)
    await quota.set_up(0)
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job())
        status = await people.until_status(lambda status: "exceeded quota: small" in get_refusal(status))
        assert (status["cause"]["kind"], status["cause"]["reason"]) == (kind, "Forbidden")
        assert "exceeded quota: small" in status["cause"]["message"]
        assert "tried again by itself" in status["cause"]["hint"]
        assert await people.find("JobSet") is None
        await quota.raise_to(1)
        await people.set_pods("Running", 1)
        status = await people.until_phase("Running")
        assert condition(status, "ResourcesCreated") is None
        assert "cause" not in status


async def test_a_quota_on_pods_is_found_below_the_job_that_cannot_make_them(
    control_plane: ControlPlane, people: People, operator_connection: Connection
) -> None:
    quota = Quota(control_plane, people, "pods")
    await quota.set_up(0)
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job())
        status = await people.until_status(lambda status: status.get("cause"))
        assert (status["cause"]["reason"], status["cause"]["layer"]) == ("QuotaExceeded", "Job")
        assert "exceeded quota: small" in status["cause"]["message"]
        await quota.raise_to(1)
        await people.set_pods("Running", 1)
        await people.until_phase("Running")
