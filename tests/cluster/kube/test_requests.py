"""Requests as values: method, path, query, body."""

import json

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.requests import (
    build_apply,
    build_create,
    build_delete,
    build_get,
    build_list,
    build_log,
    build_merge_patch,
    build_watch,
    build_watch_list,
)

JOB = ObjectKey("TrainJob", "team-a", "demo")
RUNTIME = ObjectKey("ClusterTrainingRuntime", "", "torch")
POD = ObjectKey("Pod", "team-a", "demo-node-0-0-abcde")
TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs"

TARGETS = {
    "object in a namespace": (build_get(JOB), "GET", f"{TRAIN_JOBS}/demo"),
    "cluster-scoped object": (
        build_get(RUNTIME),
        "GET",
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch",
    ),
    "core object": (build_get(POD), "GET", "/api/v1/namespaces/team-a/pods/demo-node-0-0-abcde"),
    "collection of all namespaces": (build_list("Pod"), "GET", "/api/v1/pods?limit=500"),
    "next page with labels, percent-encoded": (
        build_list("Pod", "team-a", labels={"b/c": "2", "a": "1"}, limit=2, continue_token="x=="),
        "GET",
        "/api/v1/namespaces/team-a/pods?labelSelector=a%3D1%2Cb%2Fc%3D2&limit=2&continue=x%3D%3D",
    ),
    "watch from a version": (
        build_watch("Pod", None, "17", timeout_seconds=5),
        "GET",
        "/api/v1/pods?watch=1&resourceVersion=17&allowWatchBookmarks=true&timeoutSeconds=5",
    ),
    "streaming list": (
        build_watch_list("Pod", None, timeout_seconds=5),
        "GET",
        "/api/v1/pods?watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
        "&allowWatchBookmarks=true&timeoutSeconds=5",
    ),
    "log that goes on after a time": (
        build_log(POD, "node", follow=True, since_time="2026-01-01T00:00:00Z"),
        "GET",
        "/api/v1/namespaces/team-a/pods/demo-node-0-0-abcde/log?container=node&timestamps=true&follow=true"
        "&sinceTime=2026-01-01T00%3A00%3A00Z",
    ),
    "last lines of the container before": (
        build_log(POD, "node", previous=True, tail_lines=5),
        "GET",
        "/api/v1/namespaces/team-a/pods/demo-node-0-0-abcde/log?container=node&timestamps=true&previous=true"
        "&tailLines=5",
    ),
}


@pytest.mark.parametrize(("request_", "method", "target"), TARGETS.values(), ids=TARGETS)
def test_reads_go_to(request_, method, target):
    assert (request_.method, request_.target, request_.body) == (method, target, None)


def test_create_posts_the_object_and_asks_for_strict_validation():
    obj = {"kind": "TrainJob", "metadata": {"namespace": "team-a", "generateName": "demo-"}}
    request = build_create(obj)
    assert (request.method, request.target) == ("POST", f"{TRAIN_JOBS}?fieldValidation=Strict")
    assert json.loads(request.body) == obj


def test_apply_names_its_field_manager_and_forces():
    obj = {"kind": "TrainJob", "metadata": {"namespace": "team-a", "name": "demo"}}
    request = build_apply(obj, "trainer", force=True, subresource="status")
    assert request.method == "PATCH"
    assert request.target == f"{TRAIN_JOBS}/demo/status?fieldManager=trainer&force=true"
    assert request.content_type == "application/apply-patch+yaml"


def test_merge_patch_has_its_media_type():
    request = build_merge_patch(JOB, {"spec": {"suspend": True}})
    assert (request.target, request.content_type) == (f"{TRAIN_JOBS}/demo", "application/merge-patch+json")


def test_delete_guards_by_uid_and_leaves_children_to_the_garbage_collector():
    assert json.loads(build_delete(JOB, uid="u-1").body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u-1"},
    }


@pytest.mark.parametrize(
    "api_version",
    [
        "scheduling.x-k8s.io/v1alpha1",
        "scheduling.volcano.sh/v1beta1",
        "scheduling.k8s.io/v1alpha2",
        "scheduling.k8s.io/v1alpha3",
    ],
)
def test_an_object_goes_to_its_own_group_and_version_where_several_have_its_kind(api_version):
    obj = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "demo", "namespace": "ns"}}
    collection = f"/apis/{api_version}/namespaces/ns/podgroups"
    assert build_apply(obj, "trainer", force=True).path == f"{collection}/demo"
    assert build_create(obj).path == collection
