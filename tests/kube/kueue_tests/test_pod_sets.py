"""What Kueue accounts for a job is what runs.

It works that out by itself, from the TrainJob and its runtime, with the rules of Kubeflow Trainer v2.2.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from fractions import Fraction

import pytest

from kube.kueue_tests.pods import JOB_SET_LABEL, REPLICATED_JOB_LABEL, SeenPods, sum_requests, watching_pods
from kube.kueue_tests.queues import Queues
from kube.kueue_tests.runtimes import after, build_runtime, build_step
from kube.kwok import EXIT_CODE, RUNS_FOR
from kube.operating import API_VERSION, People, Running
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.quantity import parse_quantity
from trainwright.errors import Forbidden
from trainwright.runtimes import load_shipped_runtimes

GPU = "nvidia.com/gpu"
# For all jobs together, 26 of them: 5 s where nobody else works, 200 s at a load of 60 on two cores.
PATIENCE_SECONDS = 400.0
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
    "nodes in slices": (
        build_runtime(build_step("node", "trainer"), numNodes=2, nodesPerSlice=2, torch={}),
        {"trainer": {"numNodes": 6, "numProcPerNode": 1, "resourcesPerNode": RESOURCES}},
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


def call_it_open_mpi(runtime: Json) -> Json:
    """A copy whose MPI is called Open MPI, which changes nothing about how mpirun finds its hosts."""
    spec = runtime["spec"]
    policy = spec["mlPolicy"]
    if "mpi" not in policy:
        return runtime
    mpi = {**policy["mpi"], "mpiImplementation": "OpenMPI"}
    return {**runtime, "spec": {**spec, "mlPolicy": {**policy, "mpi": mpi}}}


# Those of TorchTune bring resources of their own, which the older rules count otherwise (below), and claims.
# For Flux the older rules write the command that they start into the TrainJob, which Kueue cannot store then.
for shipped_name in load_shipped_runtimes():
    if shipped_name.startswith(("torchtune-", "flux-")):
        continue
    CASES[f"shipped: {shipped_name}"] = (
        call_it_open_mpi(build_shipped(shipped_name)),
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
StepPods = dict[str, tuple[int, Amounts]]  # number of pods and requests of all of them, by replicated job


def add_up(seen: SeenPods) -> dict[str, StepPods]:
    """Number of pods and requests of all of them, by job and replicated job."""
    counts: Counter[tuple[str, str]] = Counter()
    requests: dict[tuple[str, str], Counter[str]] = {}
    for pod in seen.pods.values():
        labels = pod["metadata"]["labels"]
        place = (labels[JOB_SET_LABEL], labels[REPLICATED_JOB_LABEL])
        counts[place] += 1
        requests.setdefault(place, Counter()).update(sum_requests(pod["spec"]))
    found: dict[str, StepPods] = {}
    for (job, step), count in counts.items():
        found.setdefault(job, {})[step] = (count, dict(requests[job, step]))
    return found


def read_admission(workload: Json) -> StepPods:
    """Number of pods and requests of all of them, by replicated job, as Kueue accounts for them."""
    return {
        assignment["name"]: (
            assignment["count"],
            {name: parse_quantity(amount).exact() for name, amount in assignment["resourceUsage"].items()},
        )
        for assignment in workload["status"]["admission"]["podSetAssignments"]
    }


async def run_all(
    cases: dict[str, tuple[Json, Json]], people: People, queues: Queues
) -> tuple[dict[str, StepPods], dict[str, StepPods]]:
    """Run a job of each case side by side; return what ran and what Kueue accounted for, by case."""
    await queues.add(QUOTAS)

    async def create(case: str, made: Json, spec: Json) -> None:
        name = build_name(case)
        await queues.add_runtime({**made, "metadata": {"name": name}})
        steps = made["spec"]["template"]["spec"]["replicatedJobs"]
        trainer = {"resourcesPerNode": {}, **spec.get("trainer", {})}
        changes = {**spec, "trainer": trainer, "runtimePatches": [build_quick_patch(steps)]}
        await people.create(queues.job(name, runtime=name, **changes))

    async def list_unfinished() -> dict[str, str]:
        jobs = await people.list("TrainJob")
        phases = {job["metadata"]["name"]: (job.get("status") or {}).get("phase", "") for job in jobs}
        return {name: phase for name, phase in phases.items() if phase != "Complete"}

    async with watching_pods(people) as seen:
        async with asyncio.TaskGroup() as group:
            for case, given in cases.items():
                group.create_task(create(case, *given), name=case)
        # One look at all of them at a time: each job for itself would keep the machine busy with being asked.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await list_unfinished():  # noqa: ASYNC110 (the world is elsewhere)
                await asyncio.sleep(0.2)
    admitted = {case: await queues.until("Admitted", name=build_name(case)) for case in cases}
    ran = add_up(seen)
    return (
        {case: ran[build_name(case)] for case in cases},
        {case: read_admission(workload) for case, workload in admitted.items()},
    )


def build_name(case: str) -> str:
    return case.lower().replace(" ", "-").replace(":", "")[:40]


@pytest.mark.timeout(600)
async def test_kueue_accounts_for_the_pods_that_run(
    people: People, queues: Queues, operator: Running
) -> None:
    ran, accounted = await run_all(CASES, people, queues)
    assert ran == accounted


ODD_CASES: dict[str, tuple[Json, Json]] = {
    "resources of both": (
        build_runtime(build_step("node", "trainer"), numNodes=1),
        {"trainer": {"resourcesPerNode": {"limits": {GPU: 1}}}},
    ),
    "MPI nodes of the runtime": (
        build_runtime(
            build_step("launcher", "trainer"), build_step("node"), mpi={"runLauncherAsNode": True}, numNodes=3
        ),
        {},
    ),
    "parameter servers": (
        build_runtime(
            build_step("worker", "trainer"),
            build_step("ps", "trainer", parallelism=2, completions=2),
            tensorflow={},
        ),
        {"trainer": {"numNodes": 3}},
    ),
}


@pytest.mark.parametrize("name", ["mpich-distributed", "intel-mpi-distributed"])
async def test_kueue_refuses_a_job_whose_mpi_the_older_rules_do_not_know(
    people: People, queues: Queues, operator: Running, name: str
) -> None:
    """With or without a queue: its webhook counts the pods of every TrainJob."""
    await queues.add(QUOTAS)
    await queues.add_runtime({**build_shipped(name), "metadata": {"name": name}})
    with pytest.raises(Forbidden, match="MPI implementation"):
        await people.create(queues.job("refused", runtime=name, trainer={"numNodes": 2}))


async def test_where_the_older_rules_count_otherwise(
    people: People, queues: Queues, operator: Running
) -> None:
    """In Trainer v2.2 a job's resources took the place of the runtime's, and are added key by key since; and
    each step with the trainer label had the policy's number of nodes, also a launcher and parameter servers.
    """
    ran, accounted = await run_all(ODD_CASES, people, queues)

    def of(pods: int, **extra: Fraction | int) -> tuple[int, Amounts]:
        each = {"cpu": Fraction(3, 4), "memory": Fraction(2**30)}
        return pods, {name: amount * pods for name, amount in {**each, **extra}.items()}

    assert ran == {
        "resources of both": {"node": of(1, **{GPU: 1})},
        "MPI nodes of the runtime": {"launcher": of(1), "node": of(2)},
        "parameter servers": {"worker": of(3), "ps": of(2)},
    }
    assert accounted == {
        "resources of both": {"node": (1, {"cpu": Fraction(1, 4), GPU: 1})},
        "MPI nodes of the runtime": {"launcher": of(3), "node": of(1)},
        "parameter servers": {"worker": of(3), "ps": of(1)},
    }
