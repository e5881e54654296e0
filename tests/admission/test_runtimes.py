"""What a runtime may be, and what its author should know."""

# ruff: noqa: E501 (messages stay on one line)

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from template.builders import PLAIN, TORCH, container, replicated_job, runtime, runtime_spec
from trainwright.admission import Verdict, default_runtime, validate_runtime
from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import (
    ClusterTrainingRuntime,
    CoschedulingPolicy,
    EnvInjection,
    EnvInjectionTarget,
    FluxPolicy,
    JAXPolicy,
    MLPolicy,
    MPIPolicy,
    PodGroupPolicy,
    RuntimeSpec,
    TensorFlowPolicy,
    TensorFlowTask,
    TorchPolicy,
    TrainingRuntime,
    VolcanoPolicy,
)
from trainwright.frameworks.plain import Plain

JOBS = "spec.template.spec.replicatedJobs"
POD = "template.spec.template.spec"


def validate(*replicated_jobs: Json, policy: MLPolicy | None = PLAIN, **fields: Any) -> Verdict:
    return validate_runtime(runtime(runtime_spec(*replicated_jobs, policy=policy, **fields)))


def step(ancestor: str, *containers: Json, **fields: Any) -> Json:
    return replicated_job(ancestor, *(containers or (container(ancestor),)), ancestor=ancestor, **fields)


def test_a_runtime_of_three_steps_is_allowed_without_a_word() -> None:
    verdict = validate(step("dataset-initializer"), step("model-initializer"), replicated_job())

    assert verdict == Verdict()
    assert verdict.is_allowed
    assert verdict.status_code == 200


def test_a_runtime_whose_nodes_come_in_slices_is_allowed() -> None:
    assert validate(policy=MLPolicy(num_nodes=4, nodes_per_slice=2)) == Verdict()


INVALID: dict[str, tuple[MLPolicy | None, Json, list[str]]] = {
    "slices of nothing": (
        MLPolicy(nodes_per_slice=0),
        {},
        ["spec.mlPolicy.nodesPerSlice: must be at least 1, is 0"],
    ),
    "an accelerator without a vendor": (
        MLPolicy(accelerators=["habana.ai/gaudi", "gaudi"]),
        {},
        [
            'spec.mlPolicy.accelerators[1]: expected the name of a device, with the domain of its vendor, such as habana.ai/gaudi, found "gaudi"'
        ],
    ),
    "injection into node": (
        MLPolicy(
            torch=TorchPolicy(
                env_injection=EnvInjection(
                    targets=[EnvInjectionTarget(job_name="node", container_names=["a", "node"])]
                )
            )
        ),
        {},
        [
            "spec.mlPolicy.torch.envInjection.targets[0].containerNames: must not contain 'node', which always gets the variables; remove it"
        ],
    ),
    "order in two ways": (
        PLAIN,
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        [
            "spec.template.spec: startupPolicyOrder InOrder and dependsOn exclude each other; keep dependsOn, which says more"
        ],
    ),
    **{
        f"two policies, {first} and {second}": (
            MLPolicy(**{first: POLICY[first], second: POLICY[second]}),
            {},
            [
                f"spec.mlPolicy: {first} and {second} are set; "
                "at most one of torch, mpi, jax, xgboost, flux, tensorflow, paddle, custom may be"
            ],
        )
        for POLICY in [{"mpi": MPIPolicy(), "torch": TorchPolicy(), "jax": JAXPolicy(), "flux": FluxPolicy()}]
        for first, second in [
            ("torch", "mpi"),
            ("torch", "jax"),
            ("torch", "flux"),
            ("mpi", "flux"),
            ("jax", "flux"),
        ]
    },
    "MPI implementation and processes": (
        MLPolicy(mpi=MPIPolicy(mpi_implementation="OpenMP", num_proc_per_node=0)),
        {},
        [
            "spec.mlPolicy.mpi.numProcPerNode: must be at least 1, is 0",
            'spec.mlPolicy.mpi.mpiImplementation: "OpenMP" is not supported; use OpenMPI, Intel, MPICH or ""; '
            "did you mean OpenMPI?",
        ],
    ),
}


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID)
def test_what_the_schema_forbids_is_invalid(case: tuple[MLPolicy | None, Json, list[str]]) -> None:
    policy, fields, expected = case
    dependent = replicated_job("b", ancestor=None, dependsOn=[{"name": "node", "status": "Ready"}])

    verdict = validate(replicated_job(), dependent, policy=policy, **fields)

    assert [str(error) for error in verdict.invalid] == expected
    assert verdict.status_code == 422


DENIED: dict[str, tuple[list[Json], MLPolicy | None, list[str]]] = {
    "slices that are not full": (
        [replicated_job()],
        MLPolicy(num_nodes=6, nodes_per_slice=4),
        ["spec.mlPolicy.numNodes: must be a multiple of nodesPerSlice, 4, is 6"],
    ),
    "slices without a number of nodes": (
        [replicated_job()],
        MLPolicy(nodes_per_slice=2),
        ["spec.mlPolicy.numNodes: must be a multiple of nodesPerSlice, 2, is 1"],
    ),
    "slices of a framework that numbers nodes": (
        [replicated_job()],
        MLPolicy(num_nodes=4, nodes_per_slice=2, jax=JAXPolicy()),
        [
            "spec.mlPolicy.nodesPerSlice: framework jax numbers nodes by their index in one Job, which repeats in each slice; remove mlPolicy.nodesPerSlice, or use a runtime for torch, or for no framework"
        ],
    ),
    "replicas of steps": (
        [
            replicated_job("launcher", ancestor=None, replicas=2),
            replicated_job("other", ancestor="something-else", replicas=2),
            step("dataset-initializer", replicas=2),
            replicated_job(replicas=2),
        ],
        PLAIN,
        [
            f"{JOBS}[{i}].replicas: must be 1 for a step of a TrainJob; mlPolicy.numNodes says how many pods it has, and mlPolicy.nodesPerSlice how many of them make a Job"
            for i in (2, 3)
        ],
    ),
    "containers of steps": (
        [
            step("dataset-initializer", container("a")),
            step("model-initializer", container("b")),
            replicated_job("node", container("c"), pod={"initContainers": [container("node")]}),
        ],
        PLAIN,
        [
            f"{JOBS}[{i}].{POD}.containers: must have a container '{name}', which a TrainJob's settings go to"
            for i, name in enumerate(("dataset-initializer", "model-initializer", "node"))
        ],
    ),
    "no trainer step": (
        [replicated_job(ancestor=None)],
        PLAIN,
        [
            f"{JOBS}: no replicated job has the label {ANCESTOR_LABEL}: trainer in its template.metadata.labels, so spec.trainer of a TrainJob would have no effect"
        ],
    ),
    "number of nodes": (
        [replicated_job()],
        MLPolicy(num_nodes=0),
        ["spec.mlPolicy.numNodes: must be at least 1, is 0"],
    ),
    "TTL of a Job (B003)": (
        [replicated_job(job={"ttlSecondsAfterFinished": 5})],
        PLAIN,
        [
            f"{JOBS}[0].template.spec.ttlSecondsAfterFinished: JobSet makes a Job that is gone anew, so finished work would run again; remove it, and set spec.ttlSecondsAfterFinished of the runtime or of the TrainJob"
        ],
    ),
    "rules of JobSet": (
        [replicated_job("a_b")],
        PLAIN,
        [
            f"{JOBS}[0].name: \"a_b\" may have lower case letters, digits and '-' only, and no '-' at either end"
        ],
    ),
}


@pytest.mark.parametrize("case", DENIED.values(), ids=DENIED)
def test_what_could_not_work_is_denied(case: tuple[list[Json], MLPolicy | None, list[str]]) -> None:
    replicated_jobs, policy, expected = case

    verdict = validate(*replicated_jobs, policy=policy)

    assert [str(error) for error in verdict.denied] == expected
    assert verdict.status_code == 403


@pytest.mark.parametrize(
    "spec",
    [None, RuntimeSpec(ml_policy=PLAIN), runtime_spec(replicatedJobs=[])],
    ids=["none", "policy", "no jobs"],
)
def test_a_runtime_with_nothing_to_run_is_denied(spec: RuntimeSpec | None) -> None:
    given = TrainingRuntime(metadata=ObjectMeta(name="rt"), spec=spec)

    assert [error.path for error in validate_runtime(given).errors] == [JOBS]


def test_at_most_one_gang_scheduler_is_allowed() -> None:
    spec = msgspec.structs.replace(
        runtime_spec(),
        pod_group_policy=PodGroupPolicy(coscheduling=CoschedulingPolicy(), volcano=VolcanoPolicy()),
    )

    assert [str(error) for error in validate_runtime(runtime(spec)).invalid] == [
        "spec.podGroupPolicy: coscheduling and volcano are set; "
        "at most one of coscheduling, volcano, kai, native may be"
    ]


@pytest.mark.parametrize("name", ["", "A", "a_b", "a" * 254])
def test_the_name_of_a_runtime_is_a_domain_name(name: str) -> None:
    verdict = validate_runtime(ClusterTrainingRuntime(metadata=ObjectMeta(name=name), spec=runtime_spec()))

    assert [error.path for error in verdict.invalid] == ["metadata.name"]


def test_a_pod_template_that_nothing_could_read_is_invalid() -> None:
    verdict = validate({"name": "node", "template": {"spec": {"template": {"spec": {"containers": [3]}}}}})

    assert [str(error) for error in verdict.errors] == [
        f"{JOBS}[0].{POD}.containers[0]: expected an object, found the number 3"
    ]


def test_errors_of_the_schema_and_of_rules_come_together() -> None:
    policy = MLPolicy(
        num_nodes=-3,
        torch=TorchPolicy(
            env_injection=EnvInjection(targets=[EnvInjectionTarget(job_name="a", container_names=["node"])])
        ),
    )

    verdict = validate(replicated_job(replicas=2), policy=policy)

    assert [error.path for error in verdict.errors] == [
        "spec.mlPolicy.torch.envInjection.targets[0].containerNames",
        "spec.mlPolicy.numNodes",
        f"{JOBS}[0].replicas",
    ]


@pytest.mark.parametrize("kind", [TrainingRuntime, ClusterTrainingRuntime])
def test_a_deprecated_runtime_of_either_kind_is_a_warning(kind: Any) -> None:
    labels = {"trainer.kubeflow.org/support": "deprecated"}
    given = kind(metadata=ObjectMeta(name="old", labels=labels), spec=runtime_spec())

    verdict = validate_runtime(given)

    assert verdict.errors == ()
    assert verdict.warnings == (
        f'{kind.__name__} "old" is deprecated and will be removed in a future release. See the runtime deprecation '
        "policy: https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy",
    )


WARNED: dict[str, tuple[list[Json], Json, list[str]]] = {
    "TTL of the JobSet": (
        [replicated_job()],
        {"ttlSecondsAfterFinished": 5},
        [
            "spec.template.spec.ttlSecondsAfterFinished deletes the JobSet and its logs but not the TrainJob; use spec.ttlSecondsAfterFinished instead"
        ],
    ),
    "deadlines of Job and pod": (
        [replicated_job(job={"activeDeadlineSeconds": 5}, pod={"activeDeadlineSeconds": 5})],
        {},
        [
            f"{JOBS}[0].{parent}.activeDeadlineSeconds fails the TrainJob without saying why; use spec.activeDeadlineSeconds of the TrainJob"
            for parent in ("template.spec", POD)
        ],
    ),
    "initializer without its label (B085)": (
        [replicated_job("dataset-initializer", ancestor=None), replicated_job()],
        {},
        [
            f"{JOBS}[0].template.metadata.labels lacks {ANCESTOR_LABEL}: dataset-initializer; without it on the Job template a TrainJob's settings do not reach dataset-initializer"
        ],
    ),
    "label on the pod template (B085)": (
        [
            replicated_job(),
            {
                "name": "fetch",
                "template": {
                    "spec": {
                        "template": {
                            "metadata": {"labels": {ANCESTOR_LABEL: "model-initializer"}},
                            "spec": {"containers": [container("model-initializer")]},
                        }
                    }
                },
            },
        ],
        {},
        [
            f"{JOBS}[1].template.metadata.labels lacks {ANCESTOR_LABEL}: model-initializer (it is on the pod template); without it on the Job template a TrainJob's settings do not reach fetch"
        ],
    ),
    "claim that only a patch could mount": (
        [replicated_job()],
        {"volumeClaimPolicies": [{"templates": [{"metadata": {"name": "data"}, "spec": {}}]}]},
        [
            "spec.template.spec.volumeClaimPolicies[0].templates[0].metadata.name: no container mounts 'data'; add a volumeMount of that name, or remove the claim"
        ],
    ),
    "names that leave no room": (
        [replicated_job("n" * 60)],
        {},
        ["spec.template.spec: names of replicated jobs are so long that no TrainJob can use the runtime"],
    ),
    "field that looks misspelt": (
        [replicated_job(pod={"nodeSelectors": {}})],
        {},
        [f"{JOBS}[0].{POD}.nodeSelectors: unknown to us and passed on; did you mean nodeSelector?"],
    ),
}


@pytest.mark.parametrize("case", WARNED.values(), ids=WARNED)
def test_what_its_author_should_know_is_a_warning(case: tuple[list[Json], Json, list[str]]) -> None:
    replicated_jobs, fields, expected = case

    verdict = validate(*replicated_jobs, **fields)

    assert (verdict.errors, list(verdict.warnings)) == ((), expected)


def test_one_subdomain_for_all_jobs_is_a_warning() -> None:
    assert validate(replicated_job(), network={"subdomain": "net"}) == Verdict(
        warnings=(
            "spec.template.spec.network.subdomain is the same for all jobs of the runtime: JobSet makes one Service for it, which finds the pods of the first of them in a namespace, so no other one's find each other; leave it out for one of each job's own",
        )
    )
    assert validate(replicated_job(), network={"subdomain": "net", "enableDNSHostnames": False}) == Verdict()


def test_nodes_without_names_are_a_warning_where_a_framework_needs_them() -> None:
    nameless = {"network": {"enableDNSHostnames": False}}

    assert validate(replicated_job(), policy=TORCH, **nameless) == Verdict(
        warnings=(
            "spec.template.spec.network.enableDNSHostnames is false, so pods have no names by which those of torch find each other: a job of several nodes waits for ever; remove it",
        )
    )
    assert validate(replicated_job(), policy=PLAIN, **nameless) == Verdict()
    assert validate(replicated_job(), policy=TORCH, network={"enableDNSHostnames": True}) == Verdict()


def test_a_framework_that_is_not_there_is_a_warning() -> None:
    given = runtime(runtime_spec(policy=MLPolicy(flux=FluxPolicy())))
    [warning] = validate_runtime(given, frameworks=(Plain(),)).warnings

    assert warning.startswith("spec.mlPolicy: framework flux is not supported by this version")


def test_what_every_job_will_be_refused_for_is_a_warning() -> None:
    targets = [EnvInjectionTarget(job_name="node", container_names=["ghost"])]
    injecting = MLPolicy(torch=TorchPolicy(env_injection=EnvInjection(targets=targets)))
    tasks = [TensorFlowTask(job_name="node", type="worker"), TensorFlowTask(job_name="pss", type="ps")]
    clustered = MLPolicy(tensorflow=TensorFlowPolicy(tasks=tasks))

    assert [validate(policy=policy).warnings for policy in (injecting, clustered)] == [
        (
            "TrainJobs of this runtime will be refused: envInjection target: the runtime has no container 'ghost' "
            "in a replicated job 'node'; correct the runtime's spec.mlPolicy.torch.envInjection",
        ),
        (
            "TrainJobs of this runtime will be refused: spec.mlPolicy.tensorflow.tasks of the runtime names a "
            "replicated job 'pss', which is not there; use one of 'node'",
        ),
    ]
    assert validate(policy=injecting).errors == validate(policy=clustered).errors == ()


def test_defaults_of_the_schema_are_filled_in() -> None:
    spec = runtime_spec(
        replicated_job(),
        policy=MLPolicy(mpi=MPIPolicy(run_launcher_as_node=True)),
        failurePolicy={"maxRestarts": 1},
        volumeClaimPolicies=[{"templates": [], "retentionPolicy": {}}],
    )
    spec = msgspec.structs.replace(spec, pod_group_policy=PodGroupPolicy(coscheduling=CoschedulingPolicy()))

    filled = default_runtime(runtime(spec))

    assert isinstance(filled, TrainingRuntime)
    assert filled.spec is not None
    assert filled.spec.template is not None
    assert filled.spec.ml_policy == MLPolicy(
        mpi=MPIPolicy(
            num_proc_per_node=1,
            mpi_implementation="OpenMPI",
            ssh_auth_mount_path="/root/.ssh",
            run_launcher_as_node=True,
        )
    )
    assert filled.spec.pod_group_policy == PodGroupPolicy(
        coscheduling=CoschedulingPolicy(schedule_timeout_seconds=60)
    )
    assert filled.spec.template.spec == {
        "replicatedJobs": [{**replicated_job(), "groupName": "default", "replicas": 1}],
        "failurePolicy": {"maxRestarts": 1, "restartStrategy": "Recreate"},
        "volumeClaimPolicies": [{"templates": [], "retentionPolicy": {"whenDeleted": "Delete"}}],
    }
    assert default_runtime(filled) == filled


def test_a_runtime_with_more_steps_than_a_status_can_tell_of_is_refused_at_once() -> None:
    """What else is wrong with each of them is not looked at: thousands fit into an object."""
    many = [replicated_job("A b", ancestor=None) for _ in range(101)]
    for i, entry in enumerate(many):
        entry["name"] = f"-{i}"
    verdict = validate(*many)
    assert [str(error) for error in verdict.errors] == [
        f"{JOBS}: may have at most 100 items, has 101: the status of a TrainJob has room for no more; make several Jobs of one replicated job by replicas"
    ]
    assert verdict.status_code == 403
    assert validate(*(replicated_job(f"j{i}", ancestor=None) for i in range(99)), replicated_job()).is_allowed
