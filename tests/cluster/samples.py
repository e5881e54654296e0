"""Small objects for tests of stores."""

from __future__ import annotations

from typing import Any

from trainwright.api.core import Event, ObjectReference
from trainwright.api.meta import Json, ObjectKey, ObjectMeta


def train_job(name: str, namespace: str = "default", **metadata: Any) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    }


def config_map(
    name: str, namespace: str = "default", data: dict[str, str] | None = None, **metadata: Any
) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "data": data or {},
    }


def pod(name: str, namespace: str = "default", containers: list[Json] | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"containers": containers or [{"name": "node", "image": "torch"}]},
    }


def owned_by(*owners: Json) -> list[Json]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]


def event_about(obj: Json, reason: str = "Failed", message: str = "no", type_: str = "Warning") -> Event:
    metadata = obj["metadata"]
    return Event(
        metadata=ObjectMeta(generate_name=f"{metadata['name']}.", namespace=metadata["namespace"]),
        involved_object=ObjectReference(
            api_version=obj["apiVersion"],
            kind=obj["kind"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
        ),
        type=type_,
        reason=reason,
        message=message,
        reporting_component="trainwright",
    )


def key_of(obj: Json) -> ObjectKey:
    metadata = obj["metadata"]
    return ObjectKey(obj["kind"], metadata.get("namespace", ""), metadata["name"])
