from __future__ import annotations

from typing import Any

import pytest

from template.builders import container, job_set_template, patch, pod_patch, replicated_job, runtime_spec
from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate
from trainwright.api.trainjob import RuntimePatch
from trainwright.field_errors import FieldError, Rule
from trainwright.template.patches import apply_patches, find_unknown_targets
from trainwright.template.replicated_jobs import get_pod_spec


def template(*replicated_jobs: Json, metadata: Json | None = None) -> JobSetTemplate:
    found = runtime_spec(*replicated_jobs, metadata=metadata).template
    assert found is not None
    return found


def patched_pod(original: Json, *changes: Json) -> Json:
    """The pod spec, without its untouched container, after patches of it."""
    patches = [pod_patch(change) for change in changes]
    result = apply_patches(template(replicated_job(pod=original)), patches).spec
    assert result is not None
    pod = dict(get_pod_spec(result["replicatedJobs"][0]))
    if pod["containers"] == [container()]:
        del pod["containers"]
    return pod


POD_FIELDS: dict[str, tuple[Json, Json, Json]] = {
    "service account is replaced": (
        {"serviceAccountName": "old"},
        {"serviceAccountName": "new"},
        {"serviceAccountName": "new"},
    ),
    "grace period may be zero": (
        {"terminationGracePeriodSeconds": 30},
        {"terminationGracePeriodSeconds": 0},
        {"terminationGracePeriodSeconds": 0},
    ),
    "node selector merges per key": (
        {"nodeSelector": {"a": "1", "b": "1"}},
        {"nodeSelector": {"b": "2", "c": "2"}},
        {"nodeSelector": {"a": "1", "b": "2", "c": "2"}},
    ),
    "tolerations are replaced": (
        {"tolerations": [{"key": "old", "operator": "Exists"}]},
        {"tolerations": [{"key": "new", "operator": "Exists"}]},
        {"tolerations": [{"key": "new", "operator": "Exists"}]},
    ),
    "affinity merges by field and replaces lists": (
        {"affinity": {"nodeAffinity": {"preferred": [1], "required": {"nodeSelectorTerms": [1, 2]}}}},
        {
            "affinity": {
                "nodeAffinity": {"required": {"nodeSelectorTerms": [3]}},
                "podAffinity": {"required": [4]},
            }
        },
        {
            "affinity": {
                "nodeAffinity": {"preferred": [1], "required": {"nodeSelectorTerms": [3]}},
                "podAffinity": {"required": [4]},
            }
        },
    ),
    "absent affinity changes nothing": (
        {"affinity": {"podAffinity": {"required": [4]}}},
        {},
        {"affinity": {"podAffinity": {"required": [4]}}},
    ),
    "pull secrets and scheduling gates merge by name": (
        {"imagePullSecrets": [{"name": "p0"}], "schedulingGates": [{"name": "g0"}]},
        {"imagePullSecrets": [{"name": "p1"}, {"name": "p0"}], "schedulingGates": [{"name": "g1"}]},
        {
            "imagePullSecrets": [{"name": "p0"}, {"name": "p1"}],
            "schedulingGates": [{"name": "g0"}, {"name": "g1"}],
        },
    ),
    "a volume of the same name is replaced whole": (
        {
            "volumes": [
                {"name": "v", "configMap": {"name": "cm", "defaultMode": 256}},
                {"name": "w", "emptyDir": {}},
            ]
        },
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "emptyDir": {}}]},
    ),
    "security contexts merge by field": (
        {"securityContext": {"runAsUser": 1, "supplementalGroups": [1, 2]}},
        {"securityContext": {"fsGroup": 5, "supplementalGroups": [3]}},
        {"securityContext": {"runAsUser": 1, "fsGroup": 5, "supplementalGroups": [3]}},
    ),
    "empty maps and lists change nothing and are not added": (
        {"nodeSelector": {"a": "1"}},
        {"nodeSelector": {}, "tolerations": [], "securityContext": {}, "affinity": {"podAffinity": {}}},
        {"nodeSelector": {"a": "1"}},
    ),
}


@pytest.mark.parametrize(("original", "change", "result"), POD_FIELDS.values(), ids=POD_FIELDS)
def test_pod_fields(original: Json, change: Json, result: Json) -> None:
    assert patched_pod(original, change) == result


CONTAINER_FIELDS: dict[str, tuple[Json, Json, Json]] = {
    "new variables come last, so that they may refer to the runtime's": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        {"env": [{"name": "X", "value": "$(B)"}, {"name": "A", "value": "9"}]},
        {"env": [{"name": "A", "value": "9"}, {"name": "B", "value": "1"}, {"name": "X", "value": "$(B)"}]},
    ),
    "a variable of the same name is replaced whole": (
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    ),
    "one volume may be mounted at two paths": (
        {"volumeMounts": [{"name": "v", "mountPath": "/a", "readOnly": True}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/a"}]},
        {
            "volumeMounts": [
                {"name": "w", "mountPath": "/a", "readOnly": True},
                {"name": "v", "mountPath": "/b"},
            ]
        },
    ),
    "container security contexts merge by field": (
        {"securityContext": {"privileged": True, "capabilities": {"add": ["A"], "drop": ["B"]}}},
        {"securityContext": {"capabilities": {"add": ["C"]}}},
        {"securityContext": {"privileged": True, "capabilities": {"add": ["C"], "drop": ["B"]}}},
    ),
}


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize(("original", "change", "result"), CONTAINER_FIELDS.values(), ids=CONTAINER_FIELDS)
def test_container_fields(kind: str, original: Json, change: Json, result: Json) -> None:
    pod = {kind: [container("other"), container("side", **original)]}
    changed = patched_pod(pod, {kind: [{"name": "side", **change}]})
    assert changed[kind] == [container("other"), container("side", **result)]


def test_labels_and_annotations_reach_the_right_replicated_job_only() -> None:
    jobs = (replicated_job("setup", ancestor=None), replicated_job())
    change = patch(
        {
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {"job": "1"}},
                        "spec": {"template": {"metadata": {"annotations": {"pod": "1"}}}},
                    },
                }
            ]
        }
    )
    expected = replicated_job()
    expected["template"]["metadata"]["labels"]["job"] = "1"
    expected["template"]["spec"]["template"]["metadata"] = {"annotations": {"pod": "1"}}
    assert apply_patches(template(*jobs), [change]).spec == {"replicatedJobs": [jobs[0], expected]}


def test_metadata_of_the_template_merges_per_key() -> None:
    original = template(metadata={"labels": {"team": "a", "tier": "x"}})
    changes = [
        patch(metadata={"labels": {"team": "b"}, "annotations": {"note": "1"}}),
        patch(metadata={"annotations": {"note": "2"}}, manager="example.com/two"),
    ]
    assert original.spec is not None
    assert apply_patches(original, changes) == job_set_template(
        original.spec, {"labels": {"team": "b", "tier": "x"}, "annotations": {"note": "2"}}
    )


def test_the_later_manager_wins_field_by_field() -> None:
    assert patched_pod(
        {},
        {"nodeSelector": {"x": "1", "y": "1"}, "serviceAccountName": "one"},
        {"nodeSelector": {"y": "2"}, "terminationGracePeriodSeconds": 5},
    ) == {
        "nodeSelector": {"x": "1", "y": "2"},
        "serviceAccountName": "one",
        "terminationGracePeriodSeconds": 5,
    }


def test_kueue_adds_tolerations_to_those_that_made_it_choose_a_flavor() -> None:
    """A flavor with taints is chosen for pods that tolerate them; its own tolerations come on top."""
    gpu, team = {"key": "gpu", "operator": "Exists"}, {"key": "team", "value": "a"}
    spot = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}

    def tolerate(manager: str, *tolerations: Json) -> RuntimePatch:
        pod = {"spec": {"tolerations": list(tolerations)}}
        job = {"name": "node", "template": {"spec": {"template": pod}}}
        return patch({"replicatedJobs": [job]}, manager=manager)

    original = template(replicated_job(pod={"tolerations": [gpu]}))
    kueue = tolerate("kueue.x-k8s.io/manager", spot, gpu)
    merged = apply_patches(original, [tolerate("example.com/one", gpu, team), kueue])
    assert get_pod_spec((merged.spec or {})["replicatedJobs"][0])["tolerations"] == [gpu, team, spot]


def test_patches_do_not_reorder_replicated_jobs() -> None:
    jobs = [replicated_job(name, ancestor=None) for name in ("a", "b", "c")]
    changes = patch({"replicatedJobs": [{"name": "c", "template": {}}, {"name": "a", "template": {}}]})
    spec = apply_patches(template(*jobs), [changes]).spec
    assert spec == {"replicatedJobs": jobs}


def test_a_patch_without_a_template_changes_nothing() -> None:
    original = template()
    assert apply_patches(original, [RuntimePatch(manager="example.com/one")]) == original


def test_targets_that_do_not_exist_are_left_out() -> None:
    original = template()
    changes = [
        pod_patch({"nodeSelector": {"a": "1"}}, name="noed"),
        pod_patch({"containers": [{"name": "ghost"}]}),
    ]
    assert apply_patches(original, changes) == original


SIDE = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
UNKNOWN: dict[str, tuple[RuntimePatch, list[FieldError]]] = {
    "a replicated job": (
        pod_patch({"nodeSelector": {"a": "1"}}, name="noed"),
        [
            FieldError(
                path=f"{SIDE}.name",
                rule=Rule.NOT_FOUND,
                detail="the runtime has no replicated job 'noed'; use one of 'setup', 'node'",
                value="noed",
            )
        ],
    ),
    "a container that is an init container, and the other way round": (
        pod_patch({"containers": [{"name": "node"}, {"name": "prep"}], "initContainers": [{"name": "node"}]}),
        [
            FieldError(
                path=f"{SIDE}.template.spec.template.spec.initContainers[0].name",
                rule=Rule.NOT_FOUND,
                detail="replicated job 'node' of the runtime has no init container 'node'; use one of 'prep'",
                value="node",
            ),
            FieldError(
                path=f"{SIDE}.template.spec.template.spec.containers[1].name",
                rule=Rule.NOT_FOUND,
                detail="replicated job 'node' of the runtime has no container 'prep'; use one of 'node'",
                value="prep",
            ),
        ],
    ),
    "an init container where there is none": (
        pod_patch({"initContainers": [{"name": "prep"}]}, name="setup"),
        [
            FieldError(
                path=f"{SIDE}.template.spec.template.spec.initContainers[0].name",
                rule=Rule.NOT_FOUND,
                detail="replicated job 'setup' of the runtime has no init container 'prep'; "
                "remove it from the patch",
                value="prep",
            )
        ],
    ),
    "nothing": (
        pod_patch({"containers": [{"name": "node"}], "initContainers": [{"name": "prep"}]}),
        [],
    ),
}


@pytest.mark.parametrize(("change", "errors"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_targets_are_found_in_the_unpatched_template(change: RuntimePatch, errors: list[Any]) -> None:
    original = template(
        replicated_job("setup", ancestor=None), replicated_job(pod={"initContainers": [container("prep")]})
    )
    assert [target.build_field_error() for target in find_unknown_targets(original, [change])] == errors


def test_a_target_that_an_earlier_patch_names_does_not_exist_for_a_later_one() -> None:
    changes = [pod_patch({"containers": [{"name": "new"}]}), pod_patch({"containers": [{"name": "new"}]})]
    assert [
        target.path[: len("spec.runtimePatches[0]")] for target in find_unknown_targets(template(), changes)
    ] == [
        "spec.runtimePatches[0]",
        "spec.runtimePatches[1]",
    ]
