"""What a running job was made with and its new pods no longer find: a Secret of keys, a ConfigMap of hosts.

A running JobSet is left as it is. But who deletes one of these keeps every pod from starting that JobSet
makes anew, for ever. Nothing has to watch them: the kubelet says which one a pod waits for, and the operator
hears that anyway. It is written again in the pass that tells so as the cause; the kubelet tries again by
itself.

A Secret gets new data. Those of ours are immutable, and a kubelet that has pods with one gives new pods the
same from memory, and misses nothing. So pods on several nodes may have different keys then; without the
Secret those on other nodes would have none.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from trainwright.control.cause import find_strongest
from trainwright.control.children import build_write
from trainwright.control.lifecycle import Plan, Render, render_again
from trainwright.control.problem import Problem
from trainwright.control.view import View

FAILED_MOUNT: Final = "FailedMount"

_KINDS: Final = {"secret": "Secret", "configmap": "ConfigMap"}
# The kubelet's words, of one volume or of several sources of one.
_NOT_FOUND: Final = re.compile(r'\b(secret|configmap) "([^"]+)" not found')

# Kind and name.
_Named = tuple[str, str]


def add_lost_objects(view: View, plan: Plan, render: Render, now: datetime) -> Plan:
    """Return the plan with the writes of what the pods of a running job miss, and was made for it.

    The cause remembers what was written: a pass that tells nothing new writes nothing.
    """
    job_set = view.job_set
    if job_set is None or job_set.spec.suspend or view.is_suspended or plan.runtime is None:
        return plan
    lost = _find_lost(view, now)
    if not lost:
        return plan
    rendered = render_again(view, job_set, plan.runtime, render)
    if isinstance(rendered, Problem):
        return plan
    writes = tuple(
        build_write(obj) for obj in rendered[:-1] if (obj["kind"], obj["metadata"]["name"]) in lost
    )
    return msgspec.structs.replace(plan, first=(*plan.first, *writes))


def _find_lost(view: View, now: datetime) -> set[_Named]:
    """Return what the first pod that cannot start misses, and the cause does not tell yet."""
    if not any(event.reason == FAILED_MOUNT for event in view.seen.events):
        return set()  # the usual case, without looking at every pod
    found = find_strongest(view, now)
    if found is None or found[0].reason != FAILED_MOUNT:
        return set()
    before = view.status.cause
    told = _read(before.message) if before is not None and before.reason == FAILED_MOUNT else set()
    return _read(found[0].message) - told


def _read(message: str) -> set[_Named]:
    return {(_KINDS[kind], name) for kind, name in _NOT_FOUND.findall(message)}
