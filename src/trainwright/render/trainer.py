"""The steps that train: what `spec.trainer` says about them (spec 01 section 5.5, steps 5 and 6)."""

from __future__ import annotations

from trainwright.api.constants import ANCESTOR_TRAINER, NODE
from trainwright.api.meta import Json
from trainwright.api.trainjob import Trainer
from trainwright.template.replicated_jobs import get_ancestor
from trainwright.template.rewrite import rewrite_containers
from trainwright.template.upsert import upsert_env


def set_trainer(replicated_job: Json, trainer: Trainer) -> Json:
    """Return the replicated job with the TrainJob's image, command, arguments and variables, if it trains.

    An empty image, command or list of arguments is not set: the runtime's stays. Variables come last, so that
    they win over what a framework sets under a name that it does not reserve; the place in the list stays.
    """
    if get_ancestor(replicated_job) != ANCESTOR_TRAINER:
        return replicated_job
    return rewrite_containers(replicated_job, {NODE: lambda container: _set_container(container, trainer)})


def _set_container(container: Json, trainer: Trainer) -> Json:
    # So that the last words of a process that fails are in the status of its pod, where nobody else decided.
    changed = {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
    if trainer.image:
        changed["image"] = trainer.image
    if trainer.command:
        changed["command"] = list(trainer.command)
    if trainer.args:
        changed["args"] = list(trainer.args)
    if trainer.env:
        changed["env"] = upsert_env(container.get("env"), trainer.env)
    return changed
