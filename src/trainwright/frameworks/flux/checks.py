"""What keeps a Flux job from being rendered, and what its user should know (spec 02 section 9.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.flux.numbers import count_gpus, count_nodes, count_tasks_per_node
from trainwright.frameworks.flux.settings import find_setting_errors, list_setting_warnings
from trainwright.frameworks.pod_index import find_unnumbered_errors
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import find_named

INSTALLER: Final = "flux-installer"


def find_errors(layout: JobLayout) -> list[FieldError]:
    """Return what would leave brokers without Flux, or without a rank."""
    trainer = layout.trainer_pod_set
    if trainer is None:
        return []
    return [
        *find_unnumbered_errors(trainer),
        *_check_installer(trainer),
        *_check_host_names(trainer),
        *find_setting_errors(layout),
    ]


def list_warnings(layout: JobLayout) -> list[str]:
    """Return what may leave GPUs idle, the command unfound or the certificate unread."""
    trainer = layout.trainer_pod_set
    node = trainer.find_container(NODE) if trainer else None
    if trainer is None or node is None:
        return []
    return [
        *_warn_of_gpus(layout),
        *_warn_of_command(layout, node),
        *_warn_of_unreadable_certificate(trainer, node),
        *list_setting_warnings(layout),
    ]


def _check_installer(trainer: PodSet) -> Iterator[FieldError]:
    if find_named(trainer.init_containers, INSTALLER) is not None:
        yield FieldError(
            path="spec.trainer.initContainers",
            rule=Rule.INVALID,
            detail=f"the name {INSTALLER} is reserved for the init container that the flux framework adds; "
            f"rename that of the runtime's replicated job {trainer.name!r}",
            value=INSTALLER,
        )


def _check_host_names(trainer: PodSet) -> Iterator[FieldError]:
    """Check that pods have the host names of the list: a broker looks for its own in it."""
    for field in ("hostNetwork", "setHostnameAsFQDN"):
        if trainer.pod_spec.get(field) and count_nodes(trainer) > 1:
            detail = (
                f"{field} gives pods of {trainer.name!r} other host names than those by which Flux finds "
                "their ranks; remove it from the runtime, or set numNodes to 1"
            )
            yield FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=field)


def _warn_of_gpus(layout: JobLayout) -> Iterator[str]:
    gpus, tasks = count_gpus(layout), count_tasks_per_node(layout)
    if gpus and gpus < tasks:
        yield (
            f"{tasks} tasks run on each node, which has {gpus} accelerators: Flux gives a task whole ones, "
            "so all tasks see all of them; set spec.trainer.numProcPerNode to a divisor of their number"
        )
    elif gpus % tasks:
        yield (
            f"{tasks} tasks run on each node, which has {gpus} accelerators: {gpus % tasks} of them stay "
            "idle; set spec.trainer.numProcPerNode to a divisor of their number"
        )


def _warn_of_command(layout: JobLayout, node: Json) -> Iterator[str]:
    """Warn of words that Flux takes for a program and that are none."""
    command = layout.trainer.command or node.get("command") or []
    arguments = layout.trainer.args or node.get("args") or []
    if not command and arguments:
        yield (
            f"neither the job nor its runtime has a command, so Flux runs the first argument, "
            f"{arguments[0]!r}, as one: the image's own entrypoint is not known; set spec.trainer.command"
        )
    elif len(command) == 1 and " " in command[0].strip():
        yield (
            f"the command is the one word {command[0]!r}, with spaces in it: no shell takes it apart; give "
            "each word as an item of its own"
        )


def _warn_of_unreadable_certificate(trainer: PodSet, node: Json) -> Iterator[str]:
    pod_context = trainer.pod_spec.get("securityContext") or {}
    user = (node.get("securityContext") or {}).get("runAsUser", pod_context.get("runAsUser"))
    if user and "fsGroup" not in pod_context:
        yield (
            f"pods of {trainer.name} run as user {user} without securityContext.fsGroup: Flux cannot read "
            "its certificate in /curve; set fsGroup in the runtime"
        )
