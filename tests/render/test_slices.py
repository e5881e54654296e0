"""A job whose nodes come in slices, rendered whole."""

from __future__ import annotations

from template.builders import IMAGE, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.constants import TEMPLATE_HASH_ANNOTATION
from trainwright.api.meta import Json
from trainwright.api.runtime import CoschedulingPolicy, MLPolicy, PodGroupPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.render import render

EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/rack"}


def sliced(nodes: int, **policies: PodGroupPolicy) -> list[Json]:
    # A gang is placed whole, and leaders of exclusive topologies before their workers: never both.
    metadata = {"annotations": EXCLUSIVE} if not policies else None
    policy = MLPolicy(num_nodes=2, nodes_per_slice=2)
    spec = runtime_spec(replicated_job(), policy=policy, metadata=metadata)
    given = RuntimeSpec(
        ml_policy=spec.ml_policy, template=spec.template, pod_group_policy=policies.get("gang")
    )
    env = [{"name": "LEADER", "value": "$(TRAINWRIGHT_SLICE_LEADER)"}]
    return render(train_job(Trainer(num_nodes=nodes, env=env)), runtime(given))


def test_each_slice_is_a_job_and_variables_of_the_trainjob_may_name_its_leader() -> None:
    [job_set] = sliced(6)
    annotations = job_set["metadata"]["annotations"]
    assert {
        name: value for name, value in annotations.items() if name != TEMPLATE_HASH_ANNOTATION
    } == EXCLUSIVE
    index = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}}
    container = {
        "name": "node",
        "image": IMAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [
            {"name": "TRAINWRIGHT_SLICE_INDEX", "valueFrom": index},
            {"name": "TRAINWRIGHT_SLICE_COUNT", "value": "3"},
            {"name": "TRAINWRIGHT_SLICE_NODES", "value": "2"},
            {"name": "TRAINWRIGHT_SLICE_LEADER", "value": "demo-node-$(TRAINWRIGHT_SLICE_INDEX)-0.demo"},
            {"name": "LEADER", "value": "$(TRAINWRIGHT_SLICE_LEADER)"},
        ],
    }
    assert job_set["spec"]["replicatedJobs"] == [
        {
            "name": "node",
            "replicas": 3,
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {
                    "parallelism": 2,
                    "completions": 2,
                    "template": {"spec": {"containers": [container]}},
                },
            },
        }
    ]


def test_the_gang_is_all_slices() -> None:
    [pod_group, _] = sliced(6, gang=PodGroupPolicy(coscheduling=CoschedulingPolicy()))
    assert pod_group["spec"]["minMember"] == 6


def test_another_number_of_slices_is_another_job_set() -> None:
    hashes = {
        sliced(nodes)[-1]["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION] for nodes in (2, 4, 4, 6)
    }
    assert len(hashes) == 3
