"""Secrets with generated data are made once, and stay as they are."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.samples import train_job
from trainwright.api.constants import GENERATED_DATA_ANNOTATION, SSH_KEY_GENERATOR
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.generators import GENERATORS
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.perform import perform
from trainwright.cluster.secrets import ensure_secret
from trainwright.control.actions import EnsureSecret
from trainwright.errors import AlreadyExists

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ObjectKey("Secret", "ns", "demo-mpi-ssh-auth")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    with LocalCluster(tmp_path / "store.db", lambda: NOW) as opened:
        yield opened


@pytest.fixture
async def job(cluster: LocalCluster) -> str:
    """The uid of a TrainJob."""
    return await create_job(cluster, "demo")


async def create_job(cluster: LocalCluster, name: str) -> str:
    created = await cluster.create(train_job(name))
    uid: str = created["metadata"]["uid"]
    return uid


def secret(owner: str | None, **fields: Any) -> Json:
    metadata: Json = {
        "name": KEY.name,
        "namespace": KEY.namespace,
        "annotations": {GENERATED_DATA_ANNOTATION: SSH_KEY_GENERATOR},
    }
    if owner is not None:
        reference = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": "demo",
            "uid": owner,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata["ownerReferences"] = [reference]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
        **fields,
    }


def ensure(owner: str | None) -> EnsureSecret:
    return EnsureSecret(object=secret(owner), generator=SSH_KEY_GENERATOR)


def encode(data: Mapping[str, bytes]) -> Json:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


async def test_a_secret_is_created_with_generated_data(cluster: LocalCluster, job: str) -> None:
    await ensure_secret(cluster, ensure(job))
    made = await cluster.get(KEY)
    assert {name: made[name] for name in ("type", "immutable")} == {
        "type": "kubernetes.io/ssh-auth",
        "immutable": True,
    }
    assert sorted(made["data"]) == ["ssh-privatekey", "ssh-publickey"]


async def test_a_secret_that_is_there_is_not_touched(cluster: LocalCluster, job: str) -> None:
    await ensure_secret(cluster, ensure(job))
    first = await cluster.get(KEY)
    await ensure_secret(cluster, ensure(job))
    assert await cluster.get(KEY) == first


async def test_a_secret_of_the_user_is_used_as_it_is(cluster: LocalCluster, job: str) -> None:
    own = secret(owner=None, data=encode({"ssh-privatekey": b"mine", "ssh-publickey": b"mine too"}))
    created = await cluster.create(own)
    await ensure_secret(cluster, ensure(job))
    assert await cluster.get(KEY) == created


async def test_a_secret_of_an_earlier_job_is_refused_in_the_status_not_shared(
    cluster: LocalCluster, job: str
) -> None:
    before = await create_job(cluster, "before")
    await ensure_secret(cluster, ensure(before))
    outcome = await perform(cluster, [ensure(job)], NOW)
    assert outcome.refusal is not None
    assert (outcome.refusal.key, outcome.refusal.reason) == (KEY, "AlreadyExists")
    assert before in outcome.refusal.message


async def test_a_job_that_no_cluster_has_seen_takes_nobodys_secret(cluster: LocalCluster, job: str) -> None:
    await ensure_secret(cluster, ensure(job))
    with pytest.raises(AlreadyExists):
        await ensure_secret(cluster, ensure(owner=None))


def test_no_two_keys_are_equal() -> None:
    first, second = GENERATORS[SSH_KEY_GENERATOR]("demo"), GENERATORS[SSH_KEY_GENERATOR]("demo")
    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in first)


def test_the_public_key_is_that_of_the_private_one_in_the_forms_that_ssh_reads() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    data = GENERATORS[SSH_KEY_GENERATOR]("demo")
    assert data["ssh-privatekey"].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    private = serialization.load_pem_private_key(data["ssh-privatekey"], password=None)
    public = serialization.load_ssh_public_key(data["ssh-publickey"])
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert private.curve.name == "secp521r1"
    assert private.public_key().public_numbers() == public.public_numbers()
    assert data["ssh-publickey"].startswith(b"ecdsa-sha2-nistp521 ")
    assert data["ssh-publickey"].count(b" ") == 1
    assert data["ssh-publickey"].endswith(b"\n")


async def test_a_package_that_is_missing_is_told_in_the_status_with_what_to_install(
    cluster: LocalCluster, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    outcome = await perform(cluster, [ensure(job)], NOW)
    assert outcome.refusal is not None
    assert outcome.refusal.reason == "MissingPackage"
    assert "pip install 'trainwright[local]'" in outcome.refusal.message
