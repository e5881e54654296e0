"""Gangs against JobSet's exclusive placement: each of the two waits for the other.

With `exclusive-topology` JobSet's webhook lets the pods of a Job be made only once the first of them, its
leader, is on a node. A gang scheduler puts none of them on a node before all are made. With JobSet's other
strategy, for which nodes are labelled beforehand, all pods are made at once.
Source: JobSet v0.12, annotations `alpha.jobset.sigs.k8s.io/*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate, PodGroupPolicy
from trainwright.gang.registry import select_gang_schedulers
from trainwright.template.replicated_jobs import get_part, list_replicated_jobs

EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"


def list_placement_warnings(policy: PodGroupPolicy | None, template: JobSetTemplate | None) -> Iterator[str]:
    """Yield a warning where the jobs of a runtime would wait for ever, by the path of the annotation."""
    chosen = select_gang_schedulers(policy)
    if template is None or not chosen:
        return
    metadata = template.metadata
    places: list[tuple[str, Json]] = [
        ("spec.template.metadata", dict((metadata.annotations if metadata else None) or {}))
    ]
    for i, replicated_job in enumerate(list_replicated_jobs(template.spec)):
        place = f"spec.template.spec.replicatedJobs[{i}].template.metadata"
        places.append((place, get_part(replicated_job, "template", "metadata", "annotations")))
    for place, found in places:
        if EXCLUSIVE_TOPOLOGY in found and NODE_SELECTOR_STRATEGY not in found:
            yield (
                f"{place}.annotations[{EXCLUSIVE_TOPOLOGY}]: JobSet makes further pods of a Job only once "
                f"the first is placed, and {chosen[0].name} places that only with all others, so a job of "
                "several nodes never starts; remove spec.podGroupPolicy, or label nodes for "
                f"{NODE_SELECTOR_STRATEGY}"
            )
