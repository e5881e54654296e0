"""Folding the membership of a gang into the JobSet, once all that asks for resources is in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from trainwright.api.encoding import build_json
from trainwright.api.meta import Json
from trainwright.api.runtime import PodGroupPolicy
from trainwright.frameworks.torch_elastic import get_elastic_policy
from trainwright.gang import Membership, build_membership, find_members
from trainwright.template.layout import JobLayout
from trainwright.template.replicated_jobs import get_part, list_replicated_jobs
from trainwright.template.rewrite import rewrite_pod_template


class JoinedGang(msgspec.Struct, frozen=True, kw_only=True):
    """A JobSet whose gang is known to its scheduler; `objects` come before it, in no namespace yet."""

    spec: Json
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    objects: tuple[Json, ...] = ()


def join_gang(policy: PodGroupPolicy | None, layout: JobLayout, spec: Json) -> JoinedGang:
    """Return what becomes of a rendered JobSet spec by the runtime's gang policy; without one, the spec."""
    metadata = build_json(layout.template.metadata) if layout.template.metadata else {}
    trainer = layout.trainer_pod_set.name if layout.trainer_pod_set else None
    elastic = get_elastic_policy(layout)
    enough = elastic.min_nodes if elastic else None
    membership = build_membership(policy, layout.job_name, metadata, spec, trainer, enough)
    if membership is None:
        return JoinedGang(spec=spec)
    return JoinedGang(
        spec=add_membership(spec, membership, find_members(spec, trainer).names),
        annotations=membership.job_set_annotations,
        objects=membership.objects,
    )


def add_membership(spec: Json, membership: Membership, members: Collection[str]) -> Json:
    """Return the JobSet spec whose pods belong to the gang; `members` are the replicated jobs that do.

    Marks of the gang replace what the template has under their names; the name of the scheduler, and labels
    that are only a default, do not.
    """

    def mark(replicated_job: Json) -> Json:
        is_member = replicated_job["name"] in members
        return rewrite_pod_template(replicated_job, lambda pod: _mark_pod(pod, membership, is_member))

    return {**spec, "replicatedJobs": [mark(replicated_job) for replicated_job in list_replicated_jobs(spec)]}


def _mark_pod(pod: Json, membership: Membership, is_member: bool) -> Json:
    metadata, pod_spec = get_part(pod, "metadata"), get_part(pod, "spec")
    labels = {**membership.common_labels, **get_part(metadata, "labels")}
    annotations = get_part(metadata, "annotations")
    if is_member:
        labels = {**labels, **membership.labels}
        annotations = {**annotations, **membership.annotations}
        pod_spec = {**pod_spec, **membership.pod_fields}
    else:
        annotations = {**membership.outsider_annotations, **annotations}
    if membership.scheduler_name and not pod_spec.get("schedulerName"):
        pod_spec = {**pod_spec, "schedulerName": membership.scheduler_name}
    return {**pod, "metadata": _build_metadata(metadata, labels, annotations), "spec": pod_spec}


def _build_metadata(metadata: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Json:
    """Return the metadata with these maps; an empty one is left out, as everywhere in a rendered object."""
    fields = {"labels": dict(labels), "annotations": dict(annotations)}
    rest = {name: value for name, value in metadata.items() if name not in fields}
    return {**rest, **{name: value for name, value in fields.items() if value}}
