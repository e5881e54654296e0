"""The steps that train: what `spec.trainer` says about them (spec 01 section 5.5, steps 5 and 6)."""

from __future__ import annotations

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.trainjob import Trainer
from trainwright.template.rewrite import rewrite_containers
from trainwright.template.steps import Step
from trainwright.template.upsert import upsert_env


def set_trainer(replicated_job: Json, trainer: Trainer, step: Step) -> Json:
    """Return the replicated job with the TrainJob's image and variables if it trains, and with its command.

    An empty image, command or list of arguments is not set: the runtime's stays. Variables come last, so that
    they win over what a framework sets under a name that it does not reserve; the place in the list stays.
    """
    if not step.trains:
        return replicated_job
    return rewrite_containers(
        replicated_job, {NODE: lambda container: _set_container(container, trainer, step)}
    )


def _set_container(container: Json, trainer: Trainer, step: Step) -> Json:
    # So that the last words of a process that fails are in the status of its pod, where nobody else decided.
    changed = {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
    if trainer.image:
        changed["image"] = trainer.image
    if trainer.command and step.runs_command:
        changed["command"] = list(trainer.command)
        if step.replaces_arguments:
            changed.pop("args", None)
    if trainer.args and step.runs_command:
        changed["args"] = list(trainer.args)
    if trainer.env:
        changed["env"] = upsert_env(container.get("env"), trainer.env)
    return changed
