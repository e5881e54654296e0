"""Writing amounts as Kubernetes does, so that `cpu: 2` and `cpu: "2000m"` render to the same bytes."""

from __future__ import annotations

from trainwright.api.meta import Json
from trainwright.template.resources import canonicalize_amounts
from trainwright.template.rewrite import rewrite_pod_spec


def set_amounts(replicated_job: Json) -> Json:
    """Return the replicated job with the amounts of every container in canonical form.

    JobSet's webhook writes them so when it stores the object; what is sent is then what is stored.
    """
    return rewrite_pod_spec(replicated_job, _set_amounts)


def _set_amounts(pod_spec: Json) -> Json:
    changed = dict(pod_spec)
    for field in ("containers", "initContainers"):
        if pod_spec.get(field):
            changed[field] = [_set_amounts_of_container(container) for container in pod_spec[field]]
    return changed


def _set_amounts_of_container(container: Json) -> Json:
    resources = container.get("resources")
    return {**container, "resources": canonicalize_amounts(resources)} if resources else container
