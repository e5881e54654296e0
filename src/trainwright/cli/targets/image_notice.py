"""Which images have no effect where jobs run as processes. Pure."""

from __future__ import annotations

from typing import Any

from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob


def list_ignored_images(train_job: TrainJob, runtime: Runtime, shipped: Runtime | None) -> list[str]:
    """Return the images that somebody chose for this job, each once.

    `shipped` is the shipped runtime of the same name: what that names was chosen by nobody here.
    """
    trainer = train_job.spec.trainer if train_job.spec else None
    images = [trainer.image] if trainer is not None and trainer.image else []
    if shipped is None or runtime.spec != shipped.spec:
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
