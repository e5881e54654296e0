"""JobSet's own rules for what it is asked to make, so that nothing is taken that JobSet would refuse later.

They are looked at twice: in a runtime, where the numbers of nodes and what patches add are still open, and in
the merged template of a TrainJob. Names are the business of `derived_names`.
Source: spec 02 section 14.5, JobSet v0.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from trainwright.admission.verdict import refuse
from trainwright.api.meta import Json
from trainwright.api.names import (
    explain_domain_path,
    explain_label,
    explain_strict_label,
    explain_subdomain,
)
from trainwright.api.shapes import MAX_FINDINGS
from trainwright.field_errors import FieldError, Rule
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import get_job_spec, get_pod_spec, list_replicated_jobs

_MOST_PODS: Final = 2**31 - 1
_MOST_REPLICAS_TO_RESTART: Final = 1024
_RULE_NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_NO_BACKOFF_LIMIT: Final = 2147483647


def find_job_set_errors(spec: Json, path: str) -> list[FieldError]:
    """Return what JobSet would refuse in this spec whoever uses it; `path` is where the spec stands."""
    names = [replicated_job["name"] for replicated_job in list_replicated_jobs(spec)]
    found = chain(
        _check_replicated_jobs(spec, path),
        _check_network(spec.get("network") or {}, f"{path}.network"),
        _check_manager(spec.get("managedBy"), f"{path}.managedBy"),
        _check_targets(spec.get("successPolicy") or {}, names, f"{path}.successPolicy"),
        _check_failure_policy(spec, names, f"{path}.failurePolicy"),
        _check_volume_claims(spec, f"{path}.volumeClaimPolicies"),
    )
    return list(islice(found, MAX_FINDINGS))


def find_count_errors(spec: Json, pod_sets: tuple[PodSet, ...], path: str) -> list[FieldError]:
    """Return what JobSet would refuse because of how many pods there are."""
    errors = [
        refuse(f"{path}.replicatedJobs[{i}]", Rule.INVALID, f"makes more than {_MOST_PODS} pods")
        for i, pod_set in enumerate(pod_sets)
        if pod_set.count * pod_set.replicas > _MOST_PODS
    ]
    errors += _check_coordinator(spec.get("coordinator"), pod_sets, f"{path}.coordinator")
    return errors


def find_unmounted_claims(spec: Json, path: str) -> list[FieldError]:
    """Return an error for each volume claim that no container mounts."""
    mounted = {
        mount["name"]
        for replicated_job in list_replicated_jobs(spec)
        for container in _list_containers(get_pod_spec(replicated_job))
        for mount in container.get("volumeMounts") or ()
    }
    return [
        refuse(
            f"{path}.volumeClaimPolicies[{i}].templates[{j}].metadata.name",
            Rule.INVALID,
            f"no container mounts {name!r}; add a volumeMount of that name, or remove the claim",
            name,
        )
        for i, j, template in _list_claim_templates(spec)
        if (name := get_claim_name(template)) not in mounted
    ]


def find_job_set_schema_errors(spec: Json, path: str) -> list[FieldError]:
    """Return what the schema of JobSet forbids beyond single fields; an API server answers it with 422."""
    errors = []
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    if in_order and any(replicated_job.get("dependsOn") for replicated_job in list_replicated_jobs(spec)):
        detail = (
            "startupPolicyOrder InOrder and dependsOn exclude each other; keep dependsOn, which says more"
        )
        errors.append(refuse(path, Rule.INVALID, detail))
    for i, j, template in _list_claim_templates(spec):
        if "namespace" in (template.get("metadata") or {}):
            place = f"{path}.volumeClaimPolicies[{i}].templates[{j}].metadata.namespace"
            errors.append(
                refuse(place, Rule.FORBIDDEN, "a claim is made in the TrainJob's namespace; remove it")
            )
    return errors


def _check_replicated_jobs(spec: Json, path: str) -> Iterator[FieldError]:
    before: list[str] = []
    for i, replicated_job in enumerate(list_replicated_jobs(spec)):
        place = f"{path}.replicatedJobs[{i}]"
        name = replicated_job["name"]
        if problem := explain_label(name):
            yield refuse(f"{place}.name", Rule.INVALID, problem, name)
        if (group := replicated_job.get("groupName")) is not None and (
            problem := explain_strict_label(group)
        ):
            yield refuse(f"{place}.groupName", Rule.INVALID, problem, group)
        for j, dependency in enumerate(replicated_job.get("dependsOn") or ()):
            target = dependency["name"]
            if target not in before:
                detail = f"{target!r} must stand before {name!r}" + _list_known(
                    before, "nothing stands before it"
                )
                yield refuse(f"{place}.dependsOn[{j}].name", Rule.INVALID, detail, target)
        before.append(name)


def _check_network(network: Json, path: str) -> Iterator[FieldError]:
    subdomain = network.get("subdomain")
    if subdomain and (problem := explain_strict_label(subdomain)):
        yield refuse(f"{path}.subdomain", Rule.INVALID, problem, subdomain)


def _check_manager(manager: str | None, path: str) -> Iterator[FieldError]:
    if manager is None:
        return
    if problem := explain_domain_path(manager):
        yield refuse(path, Rule.INVALID, problem, manager)
    elif len(manager) > 63:
        yield refuse(path, Rule.TOO_LONG, f"may have at most 63 characters, has {len(manager)}", manager)


def _check_targets(policy: Json, names: list[str], path: str) -> Iterator[FieldError]:
    for i, target in enumerate(policy.get("targetReplicatedJobs") or ()):
        if target not in names:
            detail = f"there is no replicated job {target!r}" + _list_known(names)
            yield refuse(f"{path}.targetReplicatedJobs[{i}]", Rule.NOT_FOUND, detail, target)


def _check_failure_policy(spec: Json, names: list[str], path: str) -> Iterator[FieldError]:
    policy = spec.get("failurePolicy") or {}
    seen: set[str] = set()
    for i, rule in enumerate(policy.get("rules") or ()):
        place = f"{path}.rules[{i}]"
        yield from _check_targets(rule, names, place)
        yield from _check_rule_name(rule.get("name"), seen, f"{place}.name")
        for j, reason in enumerate(rule.get("onJobFailureReasons") or ()):
            if reason not in _FAILURE_REASONS:
                detail = f"{reason!r} is no reason of a failed Job; use {', '.join(_FAILURE_REASONS)}"
                yield refuse(f"{place}.onJobFailureReasons[{j}]", Rule.NOT_SUPPORTED, detail, reason)
        if rule["action"].startswith("RestartJob") and not rule["action"].startswith("RestartJobSet"):
            replicas = [replicated_job.get("replicas") or 1 for replicated_job in list_replicated_jobs(spec)]
            many = [str(k) for k, count in enumerate(replicas) if count > _MOST_REPLICAS_TO_RESTART]
            if many:
                detail = f"{rule['action']} works with at most {_MOST_REPLICAS_TO_RESTART} replicas"
                which = f"replicatedJobs[{', '.join(many)}] {'has' if len(many) == 1 else 'have'} more"
                yield refuse(f"{place}.action", Rule.INVALID, f"{detail}; {which}", rule["action"])
    if policy.get("restartStrategy") == "InPlaceRestart":
        for i, replicated_job in enumerate(list_replicated_jobs(spec)):
            yield from _check_in_place(
                replicated_job, f"{path[: path.rindex('.')]}.replicatedJobs[{i}].template.spec"
            )


def _check_rule_name(name: str | None, seen: set[str], path: str) -> Iterator[FieldError]:
    if not name:  # JobSet names such rules itself
        return
    if len(name) > 128 or not _RULE_NAME.fullmatch(name):
        detail = "must have 1 to 128 letters, digits and '_,:', begin with a letter and end with none of ',:'"
        yield refuse(path, Rule.INVALID, detail, name)
    if name in seen:
        yield refuse(path, Rule.DUPLICATE, f"{name!r} is there twice", name)
    seen.add(name)


def _check_in_place(replicated_job: Json, path: str) -> Iterator[FieldError]:
    job_spec = get_job_spec(replicated_job)
    for field, value in (("backoffLimit", _NO_BACKOFF_LIMIT), ("podReplacementPolicy", "Failed")):
        if job_spec.get(field) != value:
            detail = f"must be {value} where the restart strategy is InPlaceRestart"
            yield refuse(f"{path}.{field}", Rule.INVALID, detail, job_spec.get(field))


def _check_coordinator(
    coordinator: Json | None, pod_sets: tuple[PodSet, ...], path: str
) -> Iterator[FieldError]:
    if coordinator is None:
        return
    name = coordinator["replicatedJob"]
    pod_set = next((pod_set for pod_set in pod_sets if pod_set.name == name), None)
    if pod_set is None:
        detail = f"there is no replicated job {name!r}" + _list_known([pod_set.name for pod_set in pod_sets])
        yield refuse(f"{path}.replicatedJob", Rule.NOT_FOUND, detail, name)
        return
    if (job_index := coordinator.get("jobIndex", 0)) >= pod_set.replicas:
        detail = f"must be below {pod_set.replicas}, the replicas of {name!r}"
        yield refuse(f"{path}.jobIndex", Rule.INVALID, detail, job_index)
    if pod_set.completions is None or not pod_set.has_indexes:
        yield refuse(
            f"{path}.replicatedJob", Rule.INVALID, f"{name!r} must be Indexed to have a coordinator", name
        )
    elif (pod_index := coordinator.get("podIndex", 0)) >= max(pod_set.completions, 1):
        detail = f"must be below {pod_set.completions}, the pods of {name!r}"
        yield refuse(f"{path}.podIndex", Rule.INVALID, detail, pod_index)


def _check_volume_claims(spec: Json, path: str) -> Iterator[FieldError]:
    pods = [get_pod_spec(replicated_job) for replicated_job in list_replicated_jobs(spec)]
    volumes = {volume["name"] for pod in pods for volume in pod.get("volumes") or ()}
    seen: set[str] = set()
    for i, j, template in _list_claim_templates(spec):
        place = f"{path}[{i}].templates[{j}].metadata.name"
        name = get_claim_name(template)
        if problem := explain_subdomain(name):
            yield refuse(place, Rule.INVALID, problem, name)
        if name in seen:
            yield refuse(place, Rule.DUPLICATE, f"{name!r} is there twice", name)
        if name in volumes:
            detail = (
                f"a pod has a volume {name!r} already; the claim becomes a volume of every pod that mounts it"
            )
            yield refuse(place, Rule.DUPLICATE, detail, name)
        seen.add(name)


def get_claim_name(template: Json) -> str:
    """Return the name of a claim template."""
    name: str = (template.get("metadata") or {}).get("name") or ""
    return name


def _list_containers(pod_spec: Json) -> list[Json]:
    return [*(pod_spec.get("containers") or ()), *(pod_spec.get("initContainers") or ())]


def _list_claim_templates(spec: Json) -> Iterator[tuple[int, int, Json]]:
    for i, policy in enumerate(spec.get("volumeClaimPolicies") or ()):
        for j, template in enumerate(policy.get("templates") or ()):
            yield i, j, template


def _list_known(names: list[Any], otherwise: str = "") -> str:
    if names:
        return f"; known are {', '.join(names)}"
    return f"; {otherwise}" if otherwise else ""
