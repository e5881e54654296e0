"""What Kueue accounts for a job is what runs.

It works that out by itself, from the TrainJob and its runtime, with the rules of Kubeflow Trainer v2.2.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from fractions import Fraction

from kube.kueue_tests.pods import JOB_SET_LABEL, REPLICATED_JOB_LABEL, SeenPods, sum_requests, watching_pods
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


Amounts = dict[str, Fraction]


def add_up(seen: SeenPods) -> dict[str, dict[str, tuple[int, Amounts]]]:
    """Number of pods and requests of all of them, by job and replicated job."""
    counts: Counter[tuple[str, str]] = Counter()
    requests: dict[tuple[str, str], Counter[str]] = {}
    for pod in seen.pods.values():
        labels = pod["metadata"]["labels"]
        place = (labels[JOB_SET_LABEL], labels[REPLICATED_JOB_LABEL])
        counts[place] += 1
        requests.setdefault(place, Counter()).update(sum_requests(pod["spec"]))
    found: dict[str, dict[str, tuple[int, Amounts]]] = {}
    for (job, step), count in counts.items():
        found.setdefault(job, {})[step] = (count, dict(requests[job, step]))
    return found


def read_admission(workload: Json) -> dict[str, tuple[int, Amounts]]:
    """Number of pods and requests of all of them, by replicated job, as Kueue accounts for them."""
    return {
        assignment["name"]: (
            assignment["count"],
            {name: parse_quantity(amount).exact() for name, amount in assignment["resourceUsage"].items()},
        )
        for assignment in workload["status"]["admission"]["podSetAssignments"]
    }


async def test_kueue_accounts_for_the_pods_that_run(
    people: People, queues: Queues, operator: Running
) -> None:
    """All cases side by side, since each takes seconds to end."""
    await queues.add(QUOTAS)

    async def run(name: str, made: Json, spec: Json) -> tuple[str, dict[str, tuple[int, Amounts]]]:
        job = name.lower().replace(" ", "-").replace(":", "")[:40]
        await people.create({**made, "metadata": {"name": job}})
        steps = made["spec"]["template"]["spec"]["replicatedJobs"]
        trainer = {"resourcesPerNode": {}, **spec.get("trainer", {})}
        changes = {**spec, "trainer": trainer, "runtimePatches": [build_quick_patch(steps)]}
        await people.create(queues.job(job, runtime=job, **changes))
        admitted = await queues.until("Admitted", name=job)
        await people.until_phase("Complete", job)
        return job, read_admission(admitted)

    async with watching_pods(people) as seen, asyncio.TaskGroup() as group:
        runs = [group.create_task(run(name, *case), name=name) for name, case in CASES.items()]
    assert add_up(seen) == dict(done.result() for done in runs)


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
    assert read_admission(admitted) == {"node": (1, {"cpu": Fraction(1, 4), GPU: 1})}
