"""What no pod of the trainer could get is said at once; an API server is asked in `tests/kube`."""

from __future__ import annotations

import msgspec
import pytest

from template.builders import container, replicated_job, runtime, runtime_spec, train_job
from trainwright.admission import validate_train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import RuntimeRef, Trainer

LIMITS: Json = {"limits": {"cpu": "2", "nvidia.com/gpu": 4}}
MERGED = "(with the runtime's own values merged in)"


def refusals(own: Json | None, of_runtime: Json | None = None, pod: Json | None = None) -> list[str]:
    """What is said of a job with these resources over a runtime with those."""
    node = container(resources=of_runtime) if of_runtime else container()
    resources = msgspec.convert(own, ResourceRequirements) if own is not None else None
    job = train_job(Trainer(resources_per_node=resources))
    reference = RuntimeRef(name="rt", kind="TrainingRuntime")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, runtime_ref=reference))
    verdict = validate_train_job(job, runtime(runtime_spec(replicated_job("node", node, pod=pod))))
    return [str(error).removeprefix("spec.trainer.resourcesPerNode.") for error in verdict.errors]


# What the job asks for, over the runtime with the limits -> what is said.
RESOURCES: dict[str, tuple[Json, list[str]]] = {
    "less than the runtime's limit": ({"requests": {"cpu": "1500m"}}, []),
    "more than the runtime's limit": (
        {"requests": {"cpu": 8}},
        [
            f"requests[cpu]: each node asks for 8 but may use 2 at most {MERGED}; raise the limit or ask for "
            "less"
        ],
    ),
    "with a limit of its own": ({"requests": {"cpu": 8}, "limits": {"cpu": 8}}, []),
    "B005 devices without limit": (
        {"requests": {"amd.com/gpu": 1}},
        [
            "requests[amd.com/gpu]: needs the same limit, else no pod can be made; set limits: "
            "{amd.com/gpu: 1}"
        ],
    ),
    "no devices, without limit": (
        {"requests": {"amd.com/gpu": 0}},
        [
            "requests[amd.com/gpu]: needs the same limit, else no pod can be made; set limits: "
            "{amd.com/gpu: 0}"
        ],
    ),
    "fewer devices than the limit": (
        {"requests": {"nvidia.com/gpu": 2}},
        [f"requests[nvidia.com/gpu]: must be 4 as the limit is {MERGED}; leave the request out"],
    ),
    "a device in halves": (
        {"limits": {"nvidia.com/gpu": "1500m"}},
        ["limits[nvidia.com/gpu]: devices are given out whole, 1500m is none; ask for a whole number"],
    ),
    "a device without its vendor": (
        {"limits": {"gpu": 1}},
        [
            "limits[gpu]: is no resource of a container (cpu, ephemeral-storage, memory, hugepages-SIZE "
            "are); devices have the domain of their vendor before them, such as nvidia.com/gpu"
        ],
    ),
    "no name at all": (
        {"requests": {"nvidia.com/": 1}},
        [
            'requests[nvidia.com/]: "nvidia.com/" is no name of a resource: the name has 1 to 63 letters, '
            "digits, '-', '_' or '.', with a letter or digit at both ends"
        ],
    ),
    "the words of a quota": (
        {"limits": {"requests.nvidia.com/gpu": 1}},
        ["limits[requests.nvidia.com/gpu]: is what a quota calls a resource; leave out 'requests.'"],
    ),
    "less than nothing, twice": (
        {"limits": {"memory": "-1"}, "requests": {"memory": "-2"}},
        ["limits[memory]: may not be below 0, is -1", "requests[memory]: may not be below 0, is -2"],
    ),
    "storage of the node": ({"requests": {"ephemeral-storage": "1Gi"}}, []),
    "huge pages": ({"limits": {"hugepages-2Mi": "4Mi"}}, []),
}


@pytest.mark.parametrize(("own", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_what_no_pod_could_get_is_denied(own: Json, expected: list[str]) -> None:
    assert refusals(own, LIMITS) == expected


def test_huge_pages_are_not_given_alone() -> None:
    assert refusals({"requests": {"hugepages-1Gi": "1Gi"}, "limits": {"hugepages-1Gi": "1Gi"}}) == [
        "limits[hugepages-1Gi]: huge pages are given beside cpu or memory only; ask for one of these as well"
    ]


def test_more_devices_than_the_runtime_requests_need_a_request_as_well() -> None:
    both = {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}}
    assert refusals({"limits": {"nvidia.com/gpu": 4}}, both) == [
        f"requests[nvidia.com/gpu]: must be 4 as the limit is {MERGED}; the runtime requests 2, so set "
        "requests: {nvidia.com/gpu: 4} as well"
    ]
    assert refusals({"limits": {"nvidia.com/gpu": 4}, "requests": {"nvidia.com/gpu": 4}}, both) == []


def test_a_device_claim_must_be_one_of_the_pod() -> None:
    claims = {"claims": [{"name": "net"}, {"name": "gpus"}]}
    assert refusals(claims) == [
        f"claims[{i}].name: the pods that train have no resource claim {name!r}; add it to resourceClaims of "
        "the runtime's pods"
        for i, name in enumerate(("net", "gpus"))
    ]
    pod = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight"}]}
    assert refusals(claims, pod=pod) == [
        "claims[0].name: the pods that train have no resource claim 'net'; use one of gpus"
    ]
    assert refusals(None, {"claims": [{"name": "net"}]}, pod=pod) == [
        "spec.runtimeRef: the pods that train have no resource claim 'net'; use one of gpus"
    ]


@pytest.mark.parametrize("own", [None, {"limits": {"memory": "1Gi"}}])
def test_what_the_runtime_alone_asks_for_is_told_at_the_reference_to_it(own: Json | None) -> None:
    assert refusals(own, {"limits": {"gpu": 1}}) == [
        "spec.runtimeRef: the container that trains has resources.limits[gpu]: 1 in the runtime: is no "
        "resource of a container (cpu, ephemeral-storage, memory, hugepages-SIZE are); devices have the "
        "domain of their vendor before them, such as nvidia.com/gpu"
    ]
