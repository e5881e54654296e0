"""What a failed pod means to its Job: batch/v1 `podFailurePolicy`.

Rules are tried in order against one failed pod; the first that matches decides. A pod that no rule matches
counts towards the backoff limit.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trainwright.api.core import ContainerStateTerminated, Pod
from trainwright.api.meta import Json


class PodFailureAction(StrEnum):
    """What a rule asks for."""

    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"
    IGNORE = "Ignore"
    COUNT = "Count"


class PodFailure(msgspec.Struct, frozen=True):
    """How the policy judges one failed pod; `message` says which rule, where one matched."""

    action: PodFailureAction
    message: str = ""


def judge_pod(policy: Json | None, pod: Pod) -> PodFailure:
    """Return what the policy makes of this failed pod."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        action = PodFailureAction(rule["action"])
        if exit_codes := rule.get("onExitCodes"):
            if found := _match_exit_codes(exit_codes, pod):
                name, code = found
                return PodFailure(
                    action,
                    f"Container {name} for pod {_name(pod)} failed with exit code {code} "
                    f"matching {action} rule at index {number}",
                )
        elif (condition := _match_conditions(rule.get("onPodConditions") or (), pod)) is not None:
            return PodFailure(
                action,
                f"Pod {_name(pod)} has condition {condition} matching {action} rule at index {number}",
            )
    return PodFailure(PodFailureAction.COUNT)


def find_terminated(pod: Pod) -> list[tuple[str, ContainerStateTerminated]]:
    """Return name and end of each container of the pod that ended, init containers first."""
    status = pod.status
    return [
        (container.name, container.state.terminated)
        for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        if container.state.terminated is not None
    ]


def _match_exit_codes(requirement: Json, pod: Pod) -> tuple[str, int] | None:
    wanted = requirement.get("containerName")
    values = requirement.get("values") or ()
    is_in = requirement.get("operator", "In") == "In"
    for name, end in find_terminated(pod):
        # A container that ended well never matches, not even "NotIn".
        if end.exit_code != 0 and (wanted is None or wanted == name) and (end.exit_code in values) == is_in:
            return name, end.exit_code
    return None


def _match_conditions(patterns: list[Json] | tuple[()], pod: Pod) -> str | None:
    for pattern in patterns:
        for condition in pod.status.conditions or ():
            if condition.type == pattern["type"] and condition.status == (pattern.get("status") or "True"):
                return condition.type
    return None


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
