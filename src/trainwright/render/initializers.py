"""The steps that fetch a dataset or a model before training (spec 01 section 5.5, step 4)."""

from __future__ import annotations

from trainwright.api.constants import (
    ANCESTOR_CONTAINERS,
    ANCESTOR_DATASET_INITIALIZER,
    ANCESTOR_MODEL_INITIALIZER,
    STORAGE_URI_ENV,
)
from trainwright.api.meta import Json
from trainwright.api.trainjob import Initializer, InitializerSource
from trainwright.template.replicated_jobs import get_ancestor
from trainwright.template.rewrite import rewrite_containers
from trainwright.template.upsert import upsert_env


def get_initializer_source(initializer: Initializer | None, ancestor: str | None) -> InitializerSource | None:
    """Return what the TrainJob says about the step of this ancestor; None where it is no initializer."""
    if initializer is None:
        return None
    sources = {
        ANCESTOR_DATASET_INITIALIZER: initializer.dataset,
        ANCESTOR_MODEL_INITIALIZER: initializer.model,
    }
    return sources.get(ancestor or "")


def set_initializer(replicated_job: Json, initializer: Initializer | None) -> Json:
    """Return the replicated job with the TrainJob's storage URI, variables and secret, if it fetches.

    The step is known by its ancestor label. A storage URI among the variables wins over `storageUri`. A
    step that the TrainJob says nothing about runs with what the runtime says.
    """
    ancestor = get_ancestor(replicated_job)
    source = get_initializer_source(initializer, ancestor)
    if source is None or ancestor is None:
        return replicated_job
    return rewrite_containers(
        replicated_job, {ANCESTOR_CONTAINERS[ancestor]: lambda container: _set_source(container, source)}
    )


def _set_source(container: Json, source: InitializerSource) -> Json:
    entries: list[Json] = []
    if source.storage_uri is not None:
        entries.append({"name": STORAGE_URI_ENV, "value": source.storage_uri})
    changed = dict(container)
    if entries or source.env:
        changed["env"] = upsert_env(container.get("env"), [*entries, *(source.env or ())])
    if source.secret_ref is not None:
        secret = {"secretRef": {"name": source.secret_ref.name}}
        changed["envFrom"] = [*(container.get("envFrom") or ()), secret]
    return changed
