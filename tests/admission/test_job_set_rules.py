"""Nothing is taken that JobSet would refuse when it is asked to make it (spec 02, section 14.5)."""

# ruff: noqa: E501 (messages stay on one line)

from __future__ import annotations

import pytest

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.admission.job_set_rules import (
    find_count_errors,
    find_job_set_errors,
    find_job_set_schema_errors,
    find_unmounted_claims,
)
from trainwright.api.meta import Json
from trainwright.api.shapes import MAX_FINDINGS
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import build_layout


def job_set(*replicated_jobs: Json, **fields: object) -> Json:
    return {"replicatedJobs": list(replicated_jobs) or [replicated_job()], **fields}


def claims(*names: str, **metadata: object) -> Json:
    templates = [{"metadata": {"name": name, **metadata}, "spec": {}} for name in names]
    return {"volumeClaimPolicies": [{"templates": templates}]}


def depends_on(*names: str) -> list[Json]:
    return [{"name": name, "status": "Ready"} for name in names]


MOUNT = {"name": "data", "mountPath": "/data"}

# given -> errors as users see them
RULES: dict[str, tuple[Json, list[str]]] = {
    "all of it at once is fine": (
        job_set(
            replicated_job("a", groupName="g"),
            replicated_job("b", dependsOn=depends_on("a")),
            network={"subdomain": "s"},
            managedBy="example.com/me",
            successPolicy={"operator": "Any", "targetReplicatedJobs": ["a"]},
            failurePolicy={
                "maxRestarts": 1,
                "rules": [
                    {"name": "one", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
                    {"action": "RestartJob", "targetReplicatedJobs": ["b"]},
                ],
            },
            coordinator={"replicatedJob": "b"},
        ),
        [],
    ),
    "name of a replicated job": (
        job_set(replicated_job("No_de")),
        [
            "replicatedJobs[0].name: \"No_de\" may have lower case letters, digits and '-' only, "
            "and no '-' at either end"
        ],
    ),
    "first replicated job depends on something": (
        job_set(replicated_job("a", dependsOn=depends_on("b")), replicated_job("b")),
        ["replicatedJobs[0].dependsOn[0].name: 'b' must stand before 'a'; nothing stands before it"],
    ),
    "depends on itself": (
        job_set(replicated_job("a"), replicated_job("b", dependsOn=depends_on("b"))),
        ["replicatedJobs[1].dependsOn[0].name: 'b' must stand before 'b'; known are a"],
    ),
    "group name": (
        job_set(replicated_job(groupName="1")),
        [
            "replicatedJobs[0].groupName: \"1\" may have lower case letters, digits and '-' only, "
            "must begin with a letter and not end with '-'; for example job-1"
        ],
    ),
    "subdomain with dots": (
        job_set(network={"subdomain": "a.b"}),
        [
            "network.subdomain: \"a.b\" may have lower case letters, digits and '-' only, "
            "must begin with a letter and not end with '-'; for example a-b"
        ],
    ),
    "manager": (
        job_set(managedBy="me"),
        ['managedBy: "me" must be a domain, a slash and a name, such as example.com/queue'],
    ),
    "long manager": (
        job_set(managedBy="a.b/" + "c" * 60),
        ["managedBy: may have at most 63 characters, has 64"],
    ),
    "target of the success policy": (
        job_set(successPolicy={"operator": "All", "targetReplicatedJobs": ["nodes"]}),
        ["successPolicy.targetReplicatedJobs[0]: there is no replicated job 'nodes'; known are node"],
    ),
    "failure rules": (
        job_set(
            failurePolicy={
                "rules": [
                    {"name": "a b", "action": "FailJobSet", "targetReplicatedJobs": ["x"]},
                    {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["OOMKilled"]},
                    {"name": "r", "action": "FailJobSet"},
                ]
            }
        ),
        [
            "failurePolicy.rules[0].targetReplicatedJobs[0]: there is no replicated job 'x'; known are node",
            "failurePolicy.rules[0].name: must have 1 to 128 letters, digits and '_,:', begin with a letter "
            "and end with none of ',:'",
            "failurePolicy.rules[1].onJobFailureReasons[0]: 'OOMKilled' is no reason of a failed Job; use "
            "BackoffLimitExceeded, DeadlineExceeded, FailedIndexes, MaxFailedIndexesExceeded, PodFailurePolicy",
            "failurePolicy.rules[2].name: 'r' is there twice",
        ],
    ),
    "restart of single Jobs out of too many": (
        job_set(
            replicated_job(ancestor=None, replicas=1025), failurePolicy={"rules": [{"action": "RestartJob"}]}
        ),
        [
            "failurePolicy.rules[0].action: RestartJob works with at most 1024 replicas; "
            "replicatedJobs[0] has more"
        ],
    ),
    "restart of single Jobs out of too many, of several": (
        job_set(
            replicated_job("a", ancestor=None, replicas=1025),
            replicated_job("b", ancestor=None),
            replicated_job("c", ancestor=None, replicas=2000),
            failurePolicy={"rules": [{"action": "RestartJob"}]},
        ),
        [
            "failurePolicy.rules[0].action: RestartJob works with at most 1024 replicas; "
            "replicatedJobs[0, 2] have more"
        ],
    ),
    "restart of all of them": (
        job_set(
            replicated_job(ancestor=None, replicas=1025),
            failurePolicy={"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]},
        ),
        [],
    ),
    "restart in place": (
        job_set(
            replicated_job(job={"backoffLimit": 0, "podReplacementPolicy": "Failed"}),
            failurePolicy={"restartStrategy": "InPlaceRestart"},
        ),
        [
            "replicatedJobs[0].template.spec.backoffLimit: must be 2147483647 where the restart strategy is "
            "InPlaceRestart"
        ],
    ),
    "names of volume claims": (
        job_set(
            replicated_job(pod={"volumes": [{"name": "data", "emptyDir": {}}]}), **claims("data", "A", "A")
        ),
        [
            "volumeClaimPolicies[0].templates[0].metadata.name: a pod has a volume 'data' already; the claim "
            "becomes a volume of every pod that mounts it",
            "volumeClaimPolicies[0].templates[1].metadata.name: \"A\" may have lower case letters, digits, '-' "
            "and '.' only, with a letter or digit at both ends of every part",
            "volumeClaimPolicies[0].templates[2].metadata.name: \"A\" may have lower case letters, digits, '-' "
            "and '.' only, with a letter or digit at both ends of every part",
            "volumeClaimPolicies[0].templates[2].metadata.name: 'A' is there twice",
        ],
    ),
}


@pytest.mark.parametrize("case", RULES.values(), ids=RULES)
def test_what_job_set_would_refuse_is_found(case: tuple[Json, list[str]]) -> None:
    spec, expected = case

    assert [str(error).removeprefix("s.") for error in find_job_set_errors(spec, "s")] == expected


COUNTS: dict[str, tuple[Json, list[str]]] = {
    "last pod of the last Job": (
        {"replicatedJob": "node", "jobIndex": 0, "podIndex": 3},
        [],
    ),
    "one pod too far": (
        {"replicatedJob": "node", "jobIndex": 1, "podIndex": 4},
        [
            "coordinator.jobIndex: must be below 1, the replicas of 'node'",
            "coordinator.podIndex: must be below 4, the pods of 'node'",
        ],
    ),
    "no such job": (
        {"replicatedJob": "x"},
        ["coordinator.replicatedJob: there is no replicated job 'x'; known are node, any"],
    ),
    "a Job without indexes": (
        {"replicatedJob": "any"},
        ["coordinator.replicatedJob: 'any' must be Indexed to have a coordinator"],
    ),
}


@pytest.mark.parametrize("case", COUNTS.values(), ids=COUNTS)
def test_a_coordinator_is_one_of_the_pods(case: tuple[Json, list[str]]) -> None:
    coordinator, expected = case
    unindexed = replicated_job("any", ancestor=None, job={"completionMode": "NonIndexed"})
    layout = build_layout(train_job(Trainer(num_nodes=4)), runtime_spec(replicated_job(), unindexed))

    errors = find_count_errors({"coordinator": coordinator}, layout.pod_sets, "s")

    assert [str(error).removeprefix("s.") for error in errors] == expected


def test_the_number_of_pods_fits_into_32_bits() -> None:
    many = replicated_job("w", ancestor=None, replicas=2**16, job={"parallelism": 2**15})
    layout = build_layout(train_job(), runtime_spec(replicated_job(), many))

    assert [str(error) for error in find_count_errors({}, layout.pod_sets, "s")] == [
        "s.replicatedJobs[1]: makes more than 2147483647 pods"
    ]


def test_a_volume_claim_is_mounted_somewhere() -> None:
    mounting = replicated_job("node", container(volumeMounts=[MOUNT]))
    initially = replicated_job("node", pod={"initContainers": [container("init", volumeMounts=[MOUNT])]})

    assert find_unmounted_claims(job_set(mounting, **claims("data")), "s") == []
    assert find_unmounted_claims(job_set(initially, **claims("data")), "s") == []
    assert [str(error) for error in find_unmounted_claims(job_set(**claims("data")), "s")] == [
        "s.volumeClaimPolicies[0].templates[0].metadata.name: no container mounts 'data'; "
        "add a volumeMount of that name, or remove the claim"
    ]


def test_what_the_schema_of_job_set_forbids_is_found() -> None:
    spec = job_set(
        replicated_job("a"),
        replicated_job("b", dependsOn=depends_on("a")),
        startupPolicy={"startupPolicyOrder": "InOrder"},
        **claims("data", namespace="x"),
    )

    assert [str(error) for error in find_job_set_schema_errors(spec, "s")] == [
        "s: startupPolicyOrder InOrder and dependsOn exclude each other; keep dependsOn, which says more",
        "s.volumeClaimPolicies[0].templates[0].metadata.namespace: a claim is made in the TrainJob's namespace; "
        "remove it",
    ]


def test_of_what_is_wrong_no_more_is_told_than_anybody_reads() -> None:
    """A runtime of 3 MB has room for 50,000 rules; all that is wrong with them would be gigabytes."""
    rules = [{"action": "FailJobSet", "targetReplicatedJobs": ["x", "y"]}] * 5_000
    assert len(find_job_set_errors(job_set(failurePolicy={"rules": rules}), "spec")) == MAX_FINDINGS
