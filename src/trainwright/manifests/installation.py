"""Everything that an installation consists of, in the order in which it is applied.

Pure but for `load_crds`, which reads files of the package. Objects of other projects are not among them:
JobSet is installed by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Final

from trainwright.api.constants import WEBHOOK_VALIDATION_LABEL
from trainwright.api.meta import Json
from trainwright.manifests.access import build_operator_access, build_user_access
from trainwright.manifests.operator_objects import build_operator_objects
from trainwright.manifests.settings import InstallSettings, build_labels, build_object
from trainwright.manifests.webhook_configurations import build_webhook_configurations

CRD_KIND: Final = "CustomResourceDefinition"


def build_installation(settings: InstallSettings, runtimes: Iterable[Json]) -> list[Json]:
    """Return the objects; `runtimes` are the shipped ones.

    CRDs come before what needs them, rights before who uses them, and webhooks after who serves them.
    """
    return [
        build_object("v1", "Namespace", settings.namespace),
        *load_crds(),
        *build_operator_access(settings),
        *build_user_access(settings),
        *build_operator_objects(settings),
        *build_webhook_configurations(settings),
        *(_mark_runtime(runtime) for runtime in runtimes),
    ]


def load_crds() -> list[Json]:
    """Return the CustomResourceDefinitions with our labels."""
    return [{**crd, "metadata": {**crd["metadata"], "labels": build_labels()}} for crd in _load_crd_files()]


@cache
def _load_crd_files() -> tuple[Json, ...]:
    import yaml  # costs more than the rest of this module

    folder = resources.files(__package__) / "crds"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    return tuple(
        yaml.load(entry.read_text(encoding="utf-8"), loader)  # noqa: S506 (a SafeLoader)
        for entry in files
    )


def _mark_runtime(runtime: Json) -> Json:
    """Return a shipped runtime with our labels; not validated, so that it can come before the webhooks."""
    labels = {
        **(runtime["metadata"].get("labels") or {}),
        **build_labels(**{WEBHOOK_VALIDATION_LABEL: "disabled"}),
    }
    return {**runtime, "metadata": {**runtime["metadata"], "labels": labels}}
