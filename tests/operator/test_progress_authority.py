"""What is read of the Secret with the certificates, and kept of the ConfigMaps of jobs."""

from __future__ import annotations

import base64
import json

import pytest

from trainwright.api.meta import Json
from trainwright.operator.progress_authority import decode_authority, read_authority

SECRETS: dict[str, tuple[Json | None, str | None]] = {
    "there": ({"data": {"ca.crt": base64.b64encode(b"pem\n").decode()}}, "pem\n"),
    "no Secret": (None, None),
    "an empty Secret": ({}, None),
    "another key": ({"data": {"tls.crt": "eA=="}}, None),
    "an empty one": ({"data": {"ca.crt": ""}}, None),
    "no base64": ({"data": {"ca.crt": "{}"}}, None),
    "no text": ({"data": {"ca.crt": base64.b64encode(b"\xff").decode()}}, None),
}


@pytest.mark.parametrize(("secret", "pem"), SECRETS.values(), ids=SECRETS)
def test_the_authority_is_read_where_there_is_one(secret: Json | None, pem: str | None) -> None:
    assert read_authority(secret) == pem


def test_of_a_config_map_its_name_and_a_hash_are_kept() -> None:
    def decode(text: str) -> Json:
        metadata = {"name": "demo-tls-config", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
        body = {"metadata": {**metadata, "labels": {"a": "b"}}, "data": {"ca.crt": text}}
        kept = decode_authority(json.dumps(body).encode())
        return {"labels": kept.metadata.labels, "name": kept.metadata.name, "digest": kept.digest}

    assert decode("one") == decode("one")
    assert decode("one")["digest"] != decode("two")["digest"]
    assert (decode("one")["name"], decode("one")["labels"]) == ("demo-tls-config", None)
