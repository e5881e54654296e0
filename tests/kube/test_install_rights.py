"""The shipped roles on a real API server: exactly what the operator sends is allowed, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest

from kube.control_plane import ControlPlane
from kube.installing import wait_until_rights_are_known
from trainwright.api.meta import Json

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import build_url, send
from trainwright.manifests.access import (
    EDIT,
    VIEW,
    VIEW_CLUSTER_RUNTIMES,
    build_operator_access,
    build_user_access,
)
from trainwright.manifests.names import (
    CERTIFICATE_SECRET,
    LEASE,
    MUTATING_CONFIGURATION,
    OPERATOR,
    PUBLIC_CONFIG_MAP,
    VALIDATING_CONFIGURATION,
)
from trainwright.manifests.settings import InstallSettings

HOME = "rights-home"  # where the operator is installed
WATCHED = "rights-watched"  # the namespace that it watches, where it watches one alone
ELSEWHERE = "rights-elsewhere"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
READ = {"get", "list", "watch"}
TRAINER = "trainer.kubeflow.org"
ADMISSION = "admissionregistration.k8s.io"

# What is asked about: (group, resource, name). Names where a right could be narrowed by one.
ASKED = (
    ("", "configmaps", ""),
    ("", "secrets", ""),
    ("", "secrets", CERTIFICATE_SECRET),
    ("", "pods", ""),
    ("", "pods/log", ""),
    ("", "pods/exec", ""),
    ("", "events", ""),
    ("", "nodes", ""),
    ("", "namespaces", ""),
    ("", "serviceaccounts", ""),
    ("", "serviceaccounts/token", ""),
    ("", "persistentvolumeclaims", ""),
    ("apps", "deployments", ""),
    ("batch", "jobs", ""),
    ("jobset.x-k8s.io", "jobsets", ""),
    ("jobset.x-k8s.io", "jobsets/status", ""),
    ("kueue.x-k8s.io", "workloads", ""),
    ("kueue.x-k8s.io", "workloads/status", ""),
    ("scheduling.x-k8s.io", "podgroups", ""),
    ("scheduling.volcano.sh", "podgroups", ""),
    ("scheduling.k8s.io", "podgroups", ""),
    ("scheduling.x-k8s.io", "podgroups/status", ""),
    (TRAINER, "trainjobs", ""),
    (TRAINER, "trainjobs/status", ""),
    (TRAINER, "trainjobs/finalizers", ""),
    (TRAINER, "trainingruntimes", ""),
    (TRAINER, "clustertrainingruntimes", ""),
    (ADMISSION, "mutatingwebhookconfigurations", ""),
    (ADMISSION, "mutatingwebhookconfigurations", MUTATING_CONFIGURATION),
    (ADMISSION, "validatingwebhookconfigurations", ""),
    (ADMISSION, "validatingwebhookconfigurations", VALIDATING_CONFIGURATION),
    ("coordination.k8s.io", "leases", ""),
    ("coordination.k8s.io", "leases", LEASE),
    ("authentication.k8s.io", "tokenreviews", ""),
    ("authorization.k8s.io", "subjectaccessreviews", ""),
    ("rbac.authorization.k8s.io", "clusterroles", ""),
    ("rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "trainjobs.trainer.kubeflow.org"),
)
Rights = Mapping[tuple[str, str, str], set[str]]

JOBS: Rights = {
    ("", "configmaps", ""): READ | {"create", "delete", "patch"},
    ("", "secrets", ""): {"create", "get"},
    ("", "secrets", CERTIFICATE_SECRET): {"create", "get"},
    ("", "pods", ""): READ,
    ("", "events", ""): READ | {"create", "patch"},
    ("batch", "jobs", ""): READ | {"delete"},
    ("jobset.x-k8s.io", "jobsets", ""): READ | {"create", "delete", "patch"},
    ("scheduling.x-k8s.io", "podgroups", ""): READ | {"create", "delete", "patch"},
    ("scheduling.volcano.sh", "podgroups", ""): READ | {"create", "delete", "patch"},
    ("scheduling.k8s.io", "podgroups", ""): {"get", "create", "patch"},
    ("kueue.x-k8s.io", "workloads", ""): READ,
    (TRAINER, "trainjobs", ""): READ | {"delete"},
    (TRAINER, "trainjobs/status", ""): {"get", "patch"},
    (TRAINER, "trainjobs/finalizers", ""): {"update"},
    (TRAINER, "trainingruntimes", ""): READ | {"patch"},
}
CLUSTER: Rights = {
    (TRAINER, "clustertrainingruntimes", ""): READ | {"patch"},
    (ADMISSION, "mutatingwebhookconfigurations", MUTATING_CONFIGURATION): READ | {"update"},
    (ADMISSION, "validatingwebhookconfigurations", VALIDATING_CONFIGURATION): READ | {"update"},
    ("apiextensions.k8s.io", "customresourcedefinitions", "trainjobs.trainer.kubeflow.org"): {"get"},
    ("authentication.k8s.io", "tokenreviews", ""): {"create"},
    ("authorization.k8s.io", "subjectaccessreviews", ""): {"create"},
}
EVERYWHERE: Rights = {**JOBS, **CLUSTER}
OWN: Rights = {
    ("", "secrets", CERTIFICATE_SECRET): READ | {"update"},
    ("coordination.k8s.io", "leases", ""): {"create"},
    ("coordination.k8s.io", "leases", LEASE): READ | {"create", "update"},
}
AT_HOME: Rights = {
    **EVERYWHERE,
    **OWN,
    ("", "secrets", CERTIFICATE_SECRET): OWN["", "secrets", CERTIFICATE_SECRET] | {"create"},
}
CHILDREN: Rights = {
    ("", "pods", ""): READ,
    ("", "pods/log", ""): READ,
    ("", "events", ""): READ,
    ("batch", "jobs", ""): READ,
    ("jobset.x-k8s.io", "jobsets", ""): READ,
    ("kueue.x-k8s.io", "workloads", ""): READ,
}
EDITOR: Rights = {
    **CHILDREN,
    ("", "configmaps", ""): {"get", "create", "patch", "delete"},
    (TRAINER, "trainjobs", ""): READ | {"create", "update", "patch", "delete"},
    (TRAINER, "trainingruntimes", ""): READ | {"create", "update", "patch", "delete"},
    (TRAINER, "clustertrainingruntimes", ""): READ,
}
VIEWER: Rights = {
    **CHILDREN,
    (TRAINER, "trainjobs", ""): READ,
    (TRAINER, "trainingruntimes", ""): READ,
    (TRAINER, "clustertrainingruntimes", ""): READ,
}
ANYBODY: Rights = {(TRAINER, "clustertrainingruntimes", ""): READ}


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with our roles, and with people who have them in one namespace.

    As a parameter it has the namespace that the operator watches alone; then the people work in that.
    """
    watched: str | None = getattr(request, "param", None)
    settings = InstallSettings(namespace=HOME, watch_namespace=watched)
    for name in (HOME, WATCHED, ELSEWHERE):
        send(control_plane, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    objects = [*build_operator_access(settings), *build_user_access(settings)]
    kind = "ClusterRole" if watched is None else "Role"
    objects += [
        _build_binding(person, kind, role, watched or HOME)
        for person, role in (("editor", EDIT), ("viewer", VIEW))
    ]
    for obj in objects:
        place = obj["metadata"].get("namespace", "")
        reply = send(control_plane, "POST", build_url(obj, place), obj)
        assert reply.code == 201, reply.message
    wait_until_rights_are_known(control_plane)
    yield control_plane
    for obj in objects:
        place = obj["metadata"].get("namespace", "")
        send(control_plane, "DELETE", build_url(obj, place, obj["metadata"]["name"]))


def _build_binding(person: str, kind: str, role: str, namespace: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{person}-{uuid.uuid4().hex[:6]}", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}],
    }


def is_allowed(
    plane: ControlPlane, user: str, verb: str, asked: tuple[str, str, str], namespace: str
) -> bool:
    group, resource, name = asked
    plural, _, subresource = resource.partition("/")
    attributes = {
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "verb": verb,
        "namespace": namespace,
    }
    review = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}}
    answer = plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def list_rights(plane: ControlPlane, user: str, namespace: str) -> Rights:
    """Everything of what is asked about that the user may do."""
    rights = {
        asked: {verb for verb in VERBS if is_allowed(plane, user, verb, asked, namespace)} for asked in ASKED
    }
    return {asked: verbs for asked, verbs in rights.items() if verbs}


@pytest.mark.parametrize(
    ("user", "namespace", "expected"),
    [
        (f"system:serviceaccount:{HOME}:{OPERATOR}", HOME, AT_HOME),
        (f"system:serviceaccount:{HOME}:{OPERATOR}", ELSEWHERE, EVERYWHERE),
        (f"system:serviceaccount:{HOME}:default", HOME, ANYBODY),
        ("editor", HOME, EDITOR),
        ("editor", ELSEWHERE, ANYBODY),
        ("viewer", HOME, VIEWER),
        ("stranger", HOME, ANYBODY),
    ],
    ids=[
        "the operator at home",
        "the operator elsewhere",
        "another account of its namespace",
        "an editor",
        "an editor elsewhere",
        "a viewer",
        "anybody",
    ],
)
def test_who_may_do_exactly_what(plane: ControlPlane, user: str, namespace: str, expected: Rights) -> None:
    assert list_rights(plane, user, namespace) == expected


@pytest.mark.parametrize("plane", [WATCHED], indirect=True, ids=["one namespace watched"])
@pytest.mark.parametrize(
    ("user", "namespace", "expected"),
    [
        (f"system:serviceaccount:{HOME}:{OPERATOR}", WATCHED, EVERYWHERE),
        (f"system:serviceaccount:{HOME}:{OPERATOR}", HOME, {**CLUSTER, **OWN}),
        (f"system:serviceaccount:{HOME}:{OPERATOR}", ELSEWHERE, CLUSTER),
        ("editor", WATCHED, EDITOR),
        ("editor", ELSEWHERE, ANYBODY),
        ("viewer", WATCHED, VIEWER),
        ("stranger", WATCHED, ANYBODY),
    ],
    ids=[
        "the operator where it watches",
        "the operator at home",
        "the operator elsewhere",
        "an editor",
        "an editor elsewhere",
        "a viewer",
        "anybody",
    ],
)
def test_of_one_namespace_who_may_do_exactly_what(
    plane: ControlPlane, user: str, namespace: str, expected: Rights
) -> None:
    assert list_rights(plane, user, namespace) == expected


def test_everybody_may_read_the_version_and_no_other_config_map(plane: ControlPlane) -> None:
    public = ("", "configmaps", PUBLIC_CONFIG_MAP)

    assert {verb for verb in VERBS if is_allowed(plane, "stranger", verb, public, HOME)} == READ
    assert not is_allowed(plane, "stranger", "get", ("", "configmaps", "kubeflow-trainer-config"), HOME)


def test_the_roles_add_themselves_to_those_of_kubernetes(plane: ControlPlane) -> None:
    """What an aggregation collects is told by labels; the controller that does it does not run here."""
    for role, builtin in ((EDIT, "edit"), (EDIT, "admin"), (VIEW, "view")):
        aggregated = plane.call("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{builtin}")
        [*selectors] = aggregated["aggregationRule"]["clusterRoleSelectors"]
        labels = plane.call("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["metadata"][
            "labels"
        ]
        assert any(selector["matchLabels"].items() <= labels.items() for selector in selectors)
    assert plane.call("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{VIEW_CLUSTER_RUNTIMES}")
