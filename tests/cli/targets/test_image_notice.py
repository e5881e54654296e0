"""Which images are said to have no effect."""

import msgspec

from trainwright.api.meta import ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, JobSetTemplate, RuntimeSpec
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.targets.image_notice import list_ignored_images
from trainwright.runtimes import load_shipped_runtimes

PLAIN = load_shipped_runtimes()["plain"]


def job(image: str | None = None) -> TrainJob:
    spec = TrainJobSpec(runtime_ref=RuntimeRef(name="plain"), trainer=Trainer(image=image))
    return TrainJob(metadata=ObjectMeta(name="digits"), spec=spec)


def runtime(*containers: dict[str, str]) -> ClusterTrainingRuntime:
    pod = {"initContainers": [{"name": "init", "image": "busybox"}], "containers": list(containers)}
    template = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    return msgspec.structs.replace(PLAIN, spec=RuntimeSpec(template=JobSetTemplate(spec=template)))


def test_nobody_chose_the_image_of_a_shipped_runtime():
    assert list_ignored_images(job(), PLAIN, PLAIN) == []


def test_the_image_of_the_job_is_told():
    assert list_ignored_images(job("acme/train:3"), PLAIN, PLAIN) == ["acme/train:3"]


def test_the_images_of_a_runtime_of_the_users_own_are_told_once():
    mine = runtime(
        {"name": "node", "image": "acme/train:3"}, {"name": "sidecar"}, {"name": "b", "image": "busybox"}
    )
    assert list_ignored_images(job("acme/train:3"), mine, PLAIN) == ["acme/train:3", "busybox"]


def test_a_runtime_that_is_not_shipped_was_chosen_by_the_user():
    assert list_ignored_images(job(), PLAIN, None) == ["python:3.13-slim"]
