"""Which images have no effect where jobs run as processes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob


def list_ignored_images(train_job: TrainJob, runtime: Runtime, shipped: Iterable[Runtime]) -> list[str]:
    """Return the images that somebody chose for this job, each once.

    What the shipped runtimes name was chosen by nobody here and needs no notice.
    """
    trainer = train_job.spec.trainer if train_job.spec else None
    images = [trainer.image] if trainer is not None and trainer.image else []
    if not any(runtime.spec == other.spec for other in shipped):
        template = (runtime.spec.template.spec if runtime.spec and runtime.spec.template else None) or {}
        images += _list_images(template)
    return list(dict.fromkeys(images))


def _list_images(template: dict[str, Any]) -> list[str]:
    images: list[str] = []
    for replicated_job in template.get("replicatedJobs") or ():
        pod = replicated_job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
        containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
        images += [str(container["image"]) for container in containers if container.get("image")]
    return images
