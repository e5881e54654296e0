"""The PodGroup of a job that has no pods: it goes, and is applied again with the next ones.

A gang scheduler counts what a PodGroup asks for from when it lets the group into its queue, pods or not. So a
suspended or finished job that kept its PodGroup would hold room that others could use (Volcano: `Inqueue`).
"""

from __future__ import annotations

from trainwright.api.meta import ObjectKey
from trainwright.api.pod_group import list_pod_group_kinds
from trainwright.api.runtime import Runtime
from trainwright.control.actions import Delete
from trainwright.control.view import View


def build_gang_deletion(view: View, runtime: Runtime | None) -> tuple[Delete, ...]:
    """Return the deletion of the job's PodGroup, once its pods are gone; nothing where there is none."""
    kinds = list_pod_group_kinds(runtime)
    pod_group = view.pod_group
    if not kinds or pod_group is None or view.live_pods:
        return ()
    metadata = pod_group.metadata
    if metadata.deletion_timestamp is not None:
        return ()
    key = ObjectKey(kinds[0], metadata.namespace or "", metadata.name)
    return (Delete(key=key, uid=metadata.uid),)
