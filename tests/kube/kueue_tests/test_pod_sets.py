"""What Kueue accounts for a job is what runs.

It works that out by itself, from the TrainJob and its runtime, with the rules of Kubeflow Trainer v2.2.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from kube.kueue_tests.pods import REPLICATED_JOB_LABEL, SeenPods, sum_requests, watching_pods
from kube.kueue_tests.queues import Queues
from kube.kueue_tests.runtimes import after, build_runtime, build_step
from kube.kwok import EXIT_CODE, RUNS_FOR
from kube.operating import API_VERSION, People, Running
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.quantity import parse_quantity
from trainwright.runtimes import load_shipped_runtimes

GPU = "nvidia.com/gpu"
QUOTAS = {"blue": {"cpu": "200", "memory": "1Ti", GPU: "100"}}


INITIALIZERS = [build_step(f"{kind}-initializer", f"{kind}-initializer") for kind in ("dataset", "model")]
SOURCES = {kind: {"storageUri": "hf://owner/name"} for kind in ("dataset", "model")}
RESOURCES = {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}
WITH_GPUS = {**RESOURCES, "limits": {"memory": "4Gi", GPU: 2}}

CASES: dict[str, tuple[Json, Json]] = {
    "nodes of the runtime": (build_runtime(build_step("node", "trainer"), numNodes=3), {}),
    "nodes and resources of the job": (
        build_runtime(build_step("node", "trainer"), numNodes=1),
        {"trainer": {"numNodes": 3, "resourcesPerNode": RESOURCES}},
    ),
    "PyTorch on several nodes": (
        build_runtime(build_step("node", "trainer"), torch={}),
        {"trainer": {"numNodes": 4, "numProcPerNode": 2, "resourcesPerNode": WITH_GPUS}},
    ),
    "JAX": (
        build_runtime(build_step("node", "trainer"), jax={}),
        {"trainer": {"numNodes": 3, "resourcesPerNode": RESOURCES}},
    ),
    "XGBoost": (
        build_runtime(build_step("node", "trainer"), xgboost={}),
        {"trainer": {"numNodes": 3, "resourcesPerNode": RESOURCES}},
    ),
    "MPI with a launcher that is a node": (
        build_runtime(build_step("launcher", "trainer"), build_step("node"), mpi={"runLauncherAsNode": True}),
        {"trainer": {"numNodes": 4, "resourcesPerNode": RESOURCES}},
    ),
    "MPI with a launcher apart": (
        build_runtime(build_step("launcher", "trainer"), build_step("node"), mpi={}),
        {"trainer": {"numNodes": 3}},
    ),
    "initializers before the nodes": (
        build_runtime(
            *INITIALIZERS,
            after(build_step("node", "trainer"), "dataset-initializer", "model-initializer"),
            numNodes=1,
        ),
        {"trainer": {"numNodes": 2, "resourcesPerNode": RESOURCES}, "initializer": SOURCES},
    ),
    "steps that are none of a TrainJob": (
        build_runtime(
            build_step("node", "trainer"),
            build_step("cache", replicas=2, parallelism=3, completions=3),
            numNodes=2,
        ),
        {},
    ),
    "no policy": (build_runtime(build_step("node", "trainer", parallelism=2, completions=2)), {}),
}


def build_shipped(name: str) -> Json:
    """A shipped runtime, in the namespace of the test."""
    shipped = build_object(load_shipped_runtimes()[name])
    return {**shipped, "apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": {"name": "made"}}


for shipped_name in load_shipped_runtimes():
    CASES[f"shipped: {shipped_name}"] = (
        build_shipped(shipped_name),
        {"trainer": {"numNodes": 3, "resourcesPerNode": RESOURCES}},
    )


def build_quick_patch(replicated_jobs: list[Json]) -> Json:
    """A patch with which every pod of the job succeeds after a moment."""
    template = {"metadata": {"annotations": {EXIT_CODE: "0", RUNS_FOR: "200ms"}}}
    return {
        "manager": "example.com/quick",
        "trainingRuntimeSpec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {"name": job["name"], "template": {"spec": {"template": template}}}
                        for job in replicated_jobs
                    ]
                }
            }
        },
    }


def add_up(seen: SeenPods) -> dict[str, tuple[int, dict[str, Fraction]]]:
    """Number of pods and requests of all of them, by replicated job."""
    counts: Counter[str] = Counter()
    requests: dict[str, Counter[str]] = {}
    for pod in seen.pods.values():
        name = pod["metadata"]["labels"][REPLICATED_JOB_LABEL]
        counts[name] += 1
        requests.setdefault(name, Counter()).update(sum_requests(pod["spec"]))
    return {name: (count, dict(requests[name])) for name, count in counts.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_kueue_accounts_for_the_pods_that_run(
    case: tuple[Json, Json], people: People, queues: Queues, operator: Running
) -> None:
    made, spec = case
    await queues.add(QUOTAS)
    await people.create(made)
    steps = made["spec"]["template"]["spec"]["replicatedJobs"]
    resources: Json = {"resourcesPerNode": {}}
    trainer = {**resources, **spec.get("trainer", {})}
    patches = [build_quick_patch(steps)]
    job = queues.job(runtime="made", **{**spec, "trainer": trainer, "runtimePatches": patches})
    async with watching_pods(people) as seen:
        await people.create(job)
        admitted = await queues.until("Admitted")
        await people.until_phase("Complete")
    assignments = admitted["status"]["admission"]["podSetAssignments"]
    assert [assignment["name"] for assignment in assignments] == [step["name"] for step in steps]
    accounted = {
        assignment["name"]: (
            assignment["count"],
            {name: parse_quantity(amount).exact() for name, amount in assignment["resourceUsage"].items()},
        )
        for assignment in assignments
    }
    assert add_up(seen) == accounted


async def test_kueue_overlooks_what_only_the_runtime_asks_for_where_the_job_asks_for_something(
    people: People, queues: Queues, operator: Running
) -> None:
    """Pods have the resources of both, key by key; in Trainer v2.2, which Kueue counts with, the job's block
    took the place of the runtime's. Where quotas matter, one of the two has to name everything.
    """
    await queues.add(QUOTAS)
    await people.create(build_runtime(build_step("node", "trainer"), numNodes=1))
    await people.create(queues.job(runtime="made", trainer={"resourcesPerNode": {"limits": {GPU: 1}}}))
    admitted = await queues.until("Admitted")
    (pod,) = await people.until_pods(1)
    assert sum_requests(pod["spec"]) == {"cpu": Fraction(3, 4), "memory": 2**30, GPU: 1}
    (assignment,) = admitted["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {"cpu": "250m", GPU: "1"}
