from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import build_layout
from trainwright.template.merged import build_merged_template
from trainwright.template.resources import (
    AcceleratorNames,
    canonicalize_amounts,
    count_accelerators,
    count_cpus,
    merge_resources,
)

# Runtime's container, TrainJob -> merged (spec 02 section 2.6).
MERGES: dict[str, tuple[Json, ResourceRequirements, Json]] = {
    "a limit beside a request": (
        {"requests": {"cpu": "1"}},
        ResourceRequirements(limits={"nvidia.com/gpu": 4}),
        {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 4}},
    ),
    "a request beside a limit": (
        {"limits": {"example.com/gpu": "2"}},
        ResourceRequirements(requests={"cpu": "4"}),
        {"limits": {"example.com/gpu": "2"}, "requests": {"cpu": "4"}},
    ),
    "the TrainJob wins per key": (
        {"requests": {"cpu": "1", "memory": "1Gi"}},
        ResourceRequirements(requests={"cpu": "1500m"}),
        {"requests": {"cpu": "1500m", "memory": "1Gi"}},
    ),
    "nothing": ({}, ResourceRequirements(), {}),
    "claims are kept and merged by name": (
        {"claims": [{"name": "dev"}, {"name": "net", "request": "a"}]},
        ResourceRequirements(
            requests={"cpu": "2"}, claims=[{"name": "net", "request": "b"}, {"name": "new"}]
        ),
        {
            "claims": [{"name": "dev"}, {"name": "net", "request": "b"}, {"name": "new"}],
            "requests": {"cpu": "2"},
        },
    ),
}


@pytest.mark.parametrize(("original", "change", "merged"), MERGES.values(), ids=MERGES)
def test_merging_resources(original: Json, change: ResourceRequirements, merged: Json) -> None:
    assert merge_resources(original, change) == merged


def test_resources_go_to_the_node_container_of_every_trainer_step_even_without_a_policy() -> None:
    jobs = (
        replicated_job("setup", ancestor=None),
        replicated_job("node", container("side"), container("node", resources={"limits": {"cpu": "1"}})),
        replicated_job("more"),
    )
    job = train_job(Trainer(resources_per_node=ResourceRequirements(requests={"cpu": "2"})))
    merged = build_merged_template(runtime_spec(*jobs, policy=None), job)
    assert merged.spec == {
        "replicatedJobs": [
            jobs[0],
            replicated_job(
                "node",
                container("side"),
                container("node", resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            ),
            replicated_job("more", container("node", resources={"requests": {"cpu": "2"}})),
        ]
    }


def test_empty_resources_are_not_added() -> None:
    job = train_job(Trainer(resources_per_node=ResourceRequirements()))
    runtime = runtime_spec()
    assert build_merged_template(runtime, job) == runtime.template


def test_amounts_are_written_as_kubernetes_does() -> None:
    resources = {
        "limits": {"cpu": 0.5, "memory": "1024Mi"},
        "requests": {"cpu": 2},
        "claims": [{"name": "c"}],
    }
    assert canonicalize_amounts(resources) == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "2"},
        "claims": [{"name": "c"}],
    }


# Resources of a container -> accelerators, CPUs.
COUNTS: dict[str, tuple[Json, int, int]] = {
    "none": ({}, 0, 0),
    "limits only": ({"limits": {"cpu": "4", "nvidia.com/gpu": "2"}}, 2, 4),
    "requests before limits": (
        {"requests": {"cpu": "2", "a/gpu": 1}, "limits": {"cpu": "8", "a/gpu": 2}},
        1,
        2,
    ),
    "a request of zero counts as none": ({"requests": {"cpu": 0}, "limits": {"cpu": "3"}}, 0, 3),
    "less than one rounds up": ({"requests": {"cpu": "700m"}}, 0, 1),
    "two and a half round up": ({"requests": {"cpu": "2.5"}}, 0, 3),
    "thousandths round up": ({"requests": {"cpu": "2500m"}}, 0, 3),
    "numbers": ({"limits": {"cpu": 3.7}}, 0, 4),
    "any case": ({"limits": {"example.com/BigGPU": "4"}}, 4, 0),
    "slices of a GPU": ({"limits": {"nvidia.com/mig-1g.5gb": "2"}}, 2, 0),
    "the sum of all names": (
        {
            "limits": {"a.com/gpu": "1", "b.com/gpu": "2", "nvidia.com/mig-1g.5gb": "3"},
            "requests": {"c/gpu": 4},
        },
        10,
        0,
    ),
    "shares of GPUs, as HAMi has them": (
        {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}},
        1,
        0,
    ),
    "shares, as Volcano has them": (
        {
            "limits": {
                "volcano.sh/vgpu-number": 2,
                "volcano.sh/vgpu-memory": "10k",
                "volcano.sh/vgpu-cores": 50,
            }
        },
        2,
        0,
    ),
    "shares, as Intel has them": (
        {
            "limits": {
                "gpu.intel.com/i915": 1,
                "gpu.intel.com/millicores": 500,
                "gpu.intel.com/memory.max": "8G",
            }
        },
        1,
        0,
    ),
    "only a vendor's domain may sound like a share": ({"limits": {"core.example.com/gpu": 4}}, 4, 0),
    "other accelerators": ({"limits": {"google.com/tpu": "4", "habana.ai/gaudi": "8"}}, 0, 0),
}


@pytest.mark.parametrize(("resources", "accelerators", "cpus"), COUNTS.values(), ids=COUNTS)
def test_counting(resources: Json, accelerators: int, cpus: int) -> None:
    assert (count_accelerators(resources), count_cpus(resources)) == (accelerators, cpus)


def test_a_runtime_may_name_further_accelerators() -> None:
    spec = runtime_spec(policy=MLPolicy(accelerators=["google.com/tpu"]))
    assert build_layout(train_job(), spec).accelerators.match("google.com/tpu")
    assert not build_layout(train_job(), runtime_spec()).accelerators.match("google.com/tpu")


def test_which_names_are_accelerators_is_a_setting() -> None:
    names = AcceleratorNames(names=frozenset({"google.com/tpu"}))
    assert (
        count_accelerators({"limits": {"google.com/tpu": "4", "nvidia.com/gpu": "1", "cpu": "9"}}, names) == 5
    )


@given(st.permutations(["a/gpu", "b/gpu", "c/mig-x", "cpu", "memory"]))
def test_the_order_of_names_does_not_matter(names: list[str]) -> None:
    amounts = {"a/gpu": "1", "b/gpu": "2", "c/mig-x": "3", "cpu": "5", "memory": "1Gi"}
    assert count_accelerators({"limits": {name: amounts[name] for name in names}}) == 6
