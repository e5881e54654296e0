"""What may differ between two installations. Everything else in the manifests follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trainwright import __version__
from trainwright.api.meta import Json
from trainwright.manifests.names import (
    DEFAULT_NAMESPACE,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    OPERATOR,
    VERSION_LABEL,
)

DEFAULT_IMAGE: Final = f"trainwright/operator:{__version__}"


class InstallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One installation.

    `namespace` is the operator's own; `watch_namespace` the only one whose jobs it runs, None for all.
    Without `public_read` only those whom a role is given to can list cluster runtimes and read the version.
    `feature_gates` go into the configuration file as they are.
    """

    namespace: str = DEFAULT_NAMESPACE
    watch_namespace: str | None = None
    image: str = DEFAULT_IMAGE
    replicas: int = 2
    feature_gates: Mapping[str, bool] = msgspec.field(default_factory=dict)
    public_read: bool = True


# Those of the peer, on everything that belongs to the running operator; the Deployment selects by them.
SELECTOR: Final[dict[str, str]] = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/component": "manager",
    "app.kubernetes.io/part-of": "kubeflow",
}


def build_labels(**more: str) -> dict[str, str]:
    """Return the labels of every object: whose it is, and which version made it."""
    return {
        "app.kubernetes.io/part-of": SELECTOR["app.kubernetes.io/part-of"],
        MANAGED_BY_LABEL: MANAGED_BY,
        VERSION_LABEL: __version__,
        **more,
    }


def build_object(
    api_version: str, kind: str, name: str, namespace: str | None = None, **fields: Json
) -> Json:
    """Return an object with our labels; `fields` are what follows the metadata."""
    metadata: Json = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": build_labels(),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def build_operator_subject(settings: InstallSettings) -> Json:
    """Return the service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": OPERATOR, "namespace": settings.namespace}
