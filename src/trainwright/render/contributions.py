"""Folding what frameworks contribute into the JobSet, by the upsert rules of `template.upsert`."""

from __future__ import annotations

from trainwright.api.meta import Json
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.template.rewrite import Rewrite, rewrite_containers, rewrite_containers_of, rewrite_pod_spec
from trainwright.template.upsert import (
    upsert_containers,
    upsert_env,
    upsert_ports,
    upsert_volume_mounts,
    upsert_volumes,
)


def add_contribution(replicated_job: Json, contribution: Contribution) -> Json:
    """Return the replicated job with what the contribution has for its pods."""
    addition = contribution.pods.get(replicated_job["name"])
    if addition is None:
        return replicated_job
    return rewrite_pod_spec(replicated_job, lambda pod_spec: _add_to_pod(pod_spec, addition))


def set_commands(replicated_job: Json, contribution: Contribution) -> Json:
    """Return the replicated job with the commands that the contribution has for its containers.

    Apart from the rest, because it comes last: a framework that has one has seen the TrainJob's own.
    """
    addition = contribution.pods.get(replicated_job["name"])
    rewrites = {
        name: _build_command_rewrite(container.command)
        for name, container in (addition.containers if addition else {}).items()
        if container.command
    }
    return rewrite_containers(replicated_job, rewrites) if rewrites else replicated_job


def _build_command_rewrite(command: tuple[str, ...]) -> Rewrite:
    return lambda container: {**container, "command": list(command)}


def _add_to_pod(pod_spec: Json, addition: PodAddition) -> Json:
    changed = dict(pod_spec)
    if addition.volumes:
        changed["volumes"] = upsert_volumes(pod_spec.get("volumes"), addition.volumes)
    if addition.init_containers:
        changed["initContainers"] = upsert_containers(
            pod_spec.get("initContainers"), addition.init_containers
        )
    return rewrite_containers_of(
        changed, {name: _build_rewrite(container) for name, container in addition.containers.items()}
    )


def _build_rewrite(addition: ContainerAddition) -> Rewrite:
    def add(container: Json) -> Json:
        changed = dict(container)
        if addition.env:
            changed["env"] = upsert_env(container.get("env"), addition.env)
        if addition.ports:
            changed["ports"] = upsert_ports(container.get("ports"), addition.ports)
        if addition.volume_mounts:
            changed["volumeMounts"] = upsert_volume_mounts(
                container.get("volumeMounts"), addition.volume_mounts
            )
        return changed

    return add
