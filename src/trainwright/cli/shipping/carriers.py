"""An archive as ConfigMaps. Pure.

They are named by what they hold and never change, so that runs with the same code share them. Each belongs to
the jobs that use it, and is deleted with the last of them.
"""

from __future__ import annotations

import base64
import hashlib

import msgspec

from trainwright.api.meta import Json

# A ConfigMap holds 1 MiB, its keys included.
CHUNK_BYTES = 1_000_000
MOST_BYTES = 3_000_000

CODE_LABEL = "trainer.kubeflow.org/code"
PART_KEY = "part"
_NAME_PREFIX = "trainer-code-"
_HASH_DIGITS = 32  # 128 bits, as a runtime's snapshot has


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent along with a job: its hash, and the ConfigMaps in the order of their parts."""

    hash: str
    carriers: tuple[Json, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the ConfigMaps."""
        return tuple(carrier["metadata"]["name"] for carrier in self.carriers)


def build_shipment(archive: bytes, namespace: str) -> Shipment:
    """Return the ConfigMaps that carry the archive, of at most MOST_BYTES."""
    digest = hashlib.sha256(archive).hexdigest()[:_HASH_DIGITS]
    chunks = [archive[start : start + CHUNK_BYTES] for start in range(0, len(archive), CHUNK_BYTES)]
    carriers = tuple(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{_NAME_PREFIX}{digest}-{number}",
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "trainwright", CODE_LABEL: digest},
            },
            "immutable": True,
            "binaryData": {PART_KEY: base64.b64encode(chunk).decode()},
        }
        for number, chunk in enumerate(chunks)
    )
    return Shipment(hash=digest, carriers=carriers)
