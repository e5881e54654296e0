"""Rules about the initializers of a TrainJob: each needs a step of the runtime to run in.

The step is found as rendering finds it, by the ancestor label of its Job template, not by its name.
Source: spec 01 section 2.4, rules J1 to J6; spec 02 section 3.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.admission.verdict import refuse
from trainwright.api.constants import (
    ANCESTOR_CONTAINERS,
    ANCESTOR_DATASET_INITIALIZER,
    ANCESTOR_LABEL,
    ANCESTOR_MODEL_INITIALIZER,
    INITIALIZER_VOLUME,
    STORAGE_URI_ENV,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import Initializer, InitializerSource
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import JobLayout
from trainwright.template.replicated_jobs import find_named

# Schemes whose data is served over the network and never written to the shared volume.
_SERVED_SCHEMES = ("cache://",)


def find_initializer_errors(
    initializer: Initializer | None, layout: JobLayout, runtime: Runtime
) -> list[FieldError]:
    """Return an error for each initializer that the runtime has no place for."""
    if initializer is None:
        return []
    steps = (
        ("dataset", ANCESTOR_DATASET_INITIALIZER, initializer.dataset),
        ("model", ANCESTOR_MODEL_INITIALIZER, initializer.model),
    )
    subject = f"{runtime.kind} {runtime.metadata.name!r}"
    nameless = [
        refuse(
            f"spec.initializer.{field}.secretRef.name",
            Rule.REQUIRED,
            "required; name the Secret whose keys the initializer gets as variables, or remove secretRef",
        )
        for field, _, source in steps
        if source is not None and source.secret_ref is not None and not source.secret_ref.name
    ]
    return nameless + [
        refuse(
            "spec.runtimeRef",
            Rule.INVALID,
            f"spec.initializer.{field} needs {problem}",
            runtime.metadata.name,
        )
        for field, ancestor, source in steps
        if source is not None
        for problem in _find_problems(ancestor, source, layout, subject)
    ]


def _find_problems(
    ancestor: str, source: InitializerSource, layout: JobLayout, subject: str
) -> Iterator[str]:
    pod_set = next((pod_set for pod_set in layout.pod_sets if pod_set.ancestor == ancestor), None)
    name = ANCESTOR_CONTAINERS[ancestor]
    if pod_set is None:
        where = f"a replicated job with the label {ANCESTOR_LABEL}: {ancestor} on its Job template"
        unlabelled = layout.find_pod_set(ancestor) is not None
        has = f"{subject} has one of that name, without the label" if unlabelled else f"{subject} has none"
        yield f"{where}; {has}"
        return
    container = find_named(pod_set.containers, name)
    if container is None:
        yield f"a container {name!r} in the replicated job {pod_set.name!r} of {subject}"
    elif _writes_files(source, container) and not _mounts_volume(container):
        yield (
            f"a volumeMount named {INITIALIZER_VOLUME!r} in the container {name!r} of {subject}, "
            "or what it fetches is lost"
        )


def _writes_files(source: InitializerSource, container: Json) -> bool:
    given = find_named(source.env, STORAGE_URI_ENV)  # wins over storageUri, as when it is rendered
    own = find_named(container.get("env"), STORAGE_URI_ENV) or {}
    uri: str = (given or {}).get("value") or "" if given else source.storage_uri or own.get("value") or ""
    return not uri.startswith(_SERVED_SCHEMES)


def _mounts_volume(container: Json) -> bool:
    return find_named(container.get("volumeMounts"), INITIALIZER_VOLUME) is not None
