"""Which replicated jobs wait for others, and the order that JobSet asks for because of it.

A replicated job may only depend on one that stands before it, and the first on none. Source: spec 02 section
14.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.meta import Json
from trainwright.frameworks.contract import Contribution


def add_dependencies(replicated_job: Json, contribution: Contribution) -> Json:
    """Return the replicated job, which starts when those that the contribution names are ready.

    What the runtime itself says about one of them stays.
    """
    addition = contribution.pods.get(replicated_job["name"])
    said = replicated_job.get("dependsOn") or []
    missing = [
        {"name": name, "status": "Ready"}
        for name in (addition.starts_after if addition else ())
        if all(dependency["name"] != name for dependency in said)
    ]
    return {**replicated_job, "dependsOn": [*said, *missing]} if missing else replicated_job


def order_by_dependency(replicated_jobs: Sequence[Json]) -> list[Json]:
    """Return the replicated jobs, each after those that it depends on; otherwise in their order.

    Jobs that depend on each other in a circle, which admission refuses, keep their places.
    """
    names = {replicated_job["name"] for replicated_job in replicated_jobs}
    waiting = list(replicated_jobs)
    placed: dict[str, Json] = {}
    while waiting:
        ready = next((job for job in waiting if _list_needs(job) & names <= placed.keys()), waiting[0])
        placed[ready["name"]] = ready
        waiting.remove(ready)
    return list(placed.values())


def _list_needs(replicated_job: Json) -> set[str]:
    return {dependency["name"] for dependency in replicated_job.get("dependsOn") or ()}
