"""What a node may ask for: admission refuses a TrainJob where the API server would refuse its pods."""

from __future__ import annotations

import msgspec
import pytest

from template.builders import runtime, runtime_spec, train_job
from trainwright.admission import validate_train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import RuntimeRef, Trainer
from trainwright.cluster.kube.errors import InvalidError
from trainwright.cluster.kube.requests import build_create

GPU = "nvidia.com/gpu"
PAGES = "hugepages-2Mi"


RESOURCES: dict[str, Json] = {
    "a device": {"limits": {GPU: 1}},
    "a device, asked for twice": {"limits": {GPU: 1}, "requests": {GPU: 1}},
    "fewer devices than the limit": {"limits": {GPU: 2}, "requests": {GPU: 1}},
    "a device without a limit": {"requests": {GPU: 1}},
    "no device, without a limit": {"requests": {GPU: 0}},
    "half a device": {"limits": {GPU: "500m"}},
    "a whole device in thousandths": {"limits": {GPU: "1000m"}},
    "a negative device": {"limits": {GPU: -1}},
    "a device without a vendor": {"limits": {"gpu": 1}},
    "a device of Kubernetes": {"limits": {"kubernetes.io/gpu": 1}},
    "a device below Kubernetes, requested only": {"requests": {"batch.kubernetes.io/gpu": 1}},
    "two slashes": {"limits": {"a/b/c": 1}},
    "no name after the slash": {"limits": {"nvidia.com/": 1}},
    "a vendor in capitals": {"limits": {"NVIDIA.com/gpu": 1}},
    "the words of a quota": {"limits": {"requests.nvidia.com/gpu": 1}},
    "negative CPUs": {"limits": {"cpu": "-1"}},
    "negative CPUs, requested": {"requests": {"cpu": "-1"}},
    "half a CPU": {"requests": {"cpu": "500m"}},
    "more than the limit": {"limits": {"cpu": 1}, "requests": {"cpu": 2}},
    "less than the limit": {"limits": {"cpu": 2}, "requests": {"cpu": 1}},
    "storage of the node": {"requests": {"ephemeral-storage": "1Gi"}},
    "storage of a claim": {"requests": {"storage": "1Gi"}},
    "pods": {"limits": {"pods": 1}},
    "a claim that the pod does not have": {"claims": [{"name": "gpus"}]},
    "huge pages alone": {"limits": {PAGES: "4Mi"}},
    "huge pages beside memory": {"limits": {PAGES: "4Mi", "memory": "1Gi"}},
    "huge pages, requested only": {"requests": {PAGES: "4Mi", "memory": "1Gi"}},
    "fewer huge pages than the limit": {
        "limits": {PAGES: "4Mi", "memory": "1Gi"},
        "requests": {PAGES: "2Mi"},
    },
}


@pytest.mark.parametrize("resources", RESOURCES.values(), ids=RESOURCES)
async def test_admission_and_the_api_server_agree(transport, namespace, resources: Json) -> None:
    node = {"name": "node", "image": "registry.example/img:1", "resources": resources}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {"containers": [node]},
    }
    try:
        await transport.request(build_create(pod, dry_run=True))
        served = None
    except InvalidError as error:
        served = str(error)

    job = train_job(Trainer(resources_per_node=msgspec.convert(resources, ResourceRequirements)))
    reference = RuntimeRef(name="rt", kind="TrainingRuntime")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, runtime_ref=reference))
    verdict = validate_train_job(job, runtime(runtime_spec()))

    assert verdict.is_allowed is (served is None), (served, verdict.errors)
    assert all(error.path.startswith("spec.trainer.resourcesPerNode.") for error in verdict.errors)
