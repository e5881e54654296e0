"""What is installed: as a golden file, and what must hold of it whatever the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright import __version__
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.writing import build_yaml
from trainwright.cluster.kube.resources import RESOURCES
from trainwright.manifests.access import ACCESS_KINDS, ACCESS_NAMES, EDIT, VIEW
from trainwright.manifests.installation import build_installation, load_crds
from trainwright.manifests.names import (
    CERTIFICATE_SECRET,
    CONFIG_KEY,
    HEALTH_PORT,
    METRICS_PORT,
    OPERATOR,
    OPERATOR_JOBS,
    PROGRESS_PORT,
    WEBHOOK_PORT,
)
from trainwright.manifests.settings import InstallSettings
from trainwright.operator.configuration import parse_bind_address, parse_configuration
from trainwright.operator.installed_objects import is_ours
from trainwright.runtimes import load_shipped_runtimes

GOLDEN = Path(__file__).resolve().parent.parent / "data/manifests/installation.yaml"


def build(**settings: Any) -> list[Json]:
    runtimes = [build_object(runtime) for runtime in load_shipped_runtimes().values()]
    return build_installation(InstallSettings(**settings), runtimes)


def find(objects: list[Json], kind: str, name: str | None = None) -> Json:
    [found] = [obj for obj in objects if obj["kind"] == kind and name in (None, obj["metadata"]["name"])]
    return found


def test_an_installation_is_that_of_the_golden_file() -> None:
    """After an intended change: `python tests/operator/test_manifests.py` writes the file anew."""
    assert GOLDEN.read_text() == render_golden()


def render_golden() -> str:
    """The default installation without the CRDs and all but one runtime, which have files of their own."""
    shown = [
        obj
        for obj in build()
        if obj["kind"] not in {"CustomResourceDefinition", "ClusterTrainingRuntime"}
        or obj["metadata"]["name"] == "plain"
    ]
    return build_yaml(shown).replace(__version__, "VERSION")


def test_everything_is_marked_as_ours_and_has_a_url() -> None:
    for obj in build():
        assert is_ours(obj), obj["metadata"]["name"]
        resource = RESOURCES[obj["kind"]]
        assert resource.api_version == obj["apiVersion"]
        assert resource.namespaced == ("namespace" in obj["metadata"])


def test_what_is_referred_to_comes_first() -> None:
    kinds = [obj["kind"] for obj in build()]

    assert kinds[0] == "Namespace"
    assert kinds.index("Deployment") > max(
        kinds.index(kind)
        for kind in ("ServiceAccount", "ClusterRoleBinding", "ConfigMap", "Secret", "Service")
    )
    assert kinds.index("MutatingWebhookConfiguration") > kinds.index("Deployment")
    assert kinds[-1] == "ClusterTrainingRuntime"
    assert len(
        {(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in build()}
    ) == len(kinds)


def test_another_namespace_is_named_everywhere() -> None:
    objects = build(namespace="trainers")

    assert "kubeflow-system" not in json.dumps(objects)
    assert {obj["metadata"].get("namespace") for obj in objects} == {None, "trainers"}


def test_the_settings_reach_the_deployment_and_the_configuration() -> None:
    objects = build(image="mirror/op:7", replicas=3, feature_gates={"TrainJobStatus": True})
    deployment = find(objects, "Deployment")
    config = parse_configuration(
        find(objects, "ConfigMap", "kubeflow-trainer-config")["data"][CONFIG_KEY], "x"
    )

    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror/op:7"
    assert config.feature_gates == {"TrainJobStatus": True}


def test_another_configuration_makes_new_pods() -> None:
    def annotations(**settings: Any) -> Json:
        found: Json = find(build(**settings), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations() == annotations()
    assert annotations(feature_gates={"TrainJobStatus": True}) != annotations()


def test_ports_are_the_same_in_the_configuration_the_container_and_the_service() -> None:
    objects = build()
    config = parse_configuration(
        find(objects, "ConfigMap", "kubeflow-trainer-config")["data"][CONFIG_KEY], "x"
    )
    [container] = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert ports == {
        "health": HEALTH_PORT,
        "metrics": METRICS_PORT,
        "webhook": WEBHOOK_PORT,
        "status-server": PROGRESS_PORT,
    }
    assert ports["webhook"] == config.webhook.port
    assert (None, ports["metrics"]) == parse_bind_address(config.metrics.bind_address)
    assert (None, ports["health"]) == parse_bind_address(config.health.health_probe_bind_address)
    assert ports["status-server"] == config.status_server.port
    for port in find(objects, "Service")["spec"]["ports"]:
        assert port["targetPort"] in ports
    assert container["livenessProbe"]["httpGet"] == {
        "path": f"/{config.health.liveness_endpoint_name}",
        "port": "health",
    }
    assert container["readinessProbe"]["httpGet"]["path"] == f"/{config.health.readiness_endpoint_name}"


def test_the_webhooks_call_a_port_that_the_service_has() -> None:
    objects = build(namespace="trainers")
    service = find(objects, "Service")
    names = {port["port"]: port["name"] for port in service["spec"]["ports"]}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in find(objects, kind)["webhooks"]:
            called = webhook["clientConfig"]["service"]
            assert (called["namespace"], called["name"]) == ("trainers", service["metadata"]["name"])
            assert names[called["port"]] == "webhook-server"
            assert "caBundle" not in webhook["clientConfig"]


def test_the_service_selects_the_pods_of_the_deployment() -> None:
    objects = build()
    template = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        find(objects, "Service")["spec"]["selector"],
        find(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= template.items()


def test_the_pod_may_do_as_little_as_possible() -> None:
    pod = find(build(), "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    security = container["securityContext"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]
    # The private key of the CA is in no file of the pod.
    assert CERTIFICATE_SECRET not in json.dumps(pod)


def test_the_secret_is_installed_without_data_so_that_an_upgrade_keeps_the_certificate() -> None:
    assert set(find(build(), "Secret")) == {"apiVersion", "kind", "metadata", "type"}


def test_no_role_has_a_wildcard_and_the_operator_lists_no_secrets_outside_of_its_namespace() -> None:
    for obj in build():
        for rule in obj.get("rules") or ():
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if obj["kind"] == "ClusterRole":
                if "secrets" in rule["resources"]:
                    assert (rule["resources"], rule["verbs"]) == (["secrets"], ["create", "get"])
                assert not {"impersonate", "escalate", "bind"} & set(rule["verbs"])


def test_reading_for_everybody_can_be_left_out() -> None:
    def list_public(objects: list[Json]) -> list[str]:
        return [
            f"{obj['kind']} {obj['metadata']['name']}"
            for obj in objects
            if "system:authenticated" in json.dumps(obj)
        ]

    assert list_public(build()) == [
        "ClusterRoleBinding kubeflow-trainer-view-cluster-runtimes",
        "RoleBinding kubeflow-trainer-public",
    ]
    assert list_public(build(public_read=False)) == []
    assert find(build(public_read=False), "ClusterRole", "kubeflow-trainer-view-cluster-runtimes")


def list_rights(rules: list[Json]) -> set[tuple[str, str, str, str]]:
    """Return (group, resource, verb, name) of everything that the rules allow."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("*",)
    }


def test_an_operator_of_one_namespace_has_the_same_rights_there_and_to_nothing_of_others() -> None:
    objects = build(namespace="trainers", watch_namespace="team-a")
    cluster = list_rights(find(objects, "ClusterRole", OPERATOR)["rules"])
    watched = list_rights(find(objects, "Role", OPERATOR_JOBS)["rules"])

    assert find(objects, "Role", OPERATOR_JOBS)["metadata"]["namespace"] == "team-a"
    assert find(objects, "RoleBinding", OPERATOR_JOBS)["metadata"]["namespace"] == "team-a"
    assert find(objects, "RoleBinding", OPERATOR_JOBS)["subjects"] == [
        {"kind": "ServiceAccount", "name": OPERATOR, "namespace": "trainers"}
    ]
    assert cluster | watched == list_rights(find(build(), "ClusterRole", OPERATOR)["rules"])
    resources = {resource.plural: resource for resource in RESOURCES.values()}
    assert not any(resources[plural].namespaced for _, plural, _, _ in cluster)
    assert all(resources[plural.partition("/")[0]].namespaced for _, plural, _, _ in watched)


def test_of_one_namespace_only_what_no_namespace_can_hold_is_for_the_cluster() -> None:
    objects = build(namespace="trainers", watch_namespace="team-a")
    everywhere = [
        f"{obj['kind']} {obj['metadata']['name']}"
        for obj in objects
        if "namespace" not in obj["metadata"]
        and obj["kind"] not in {"CustomResourceDefinition", "ClusterTrainingRuntime"}
    ]

    assert everywhere == [
        "Namespace trainers",  # of the operator; that of the users is theirs
        f"ClusterRole {OPERATOR}",
        f"ClusterRoleBinding {OPERATOR}",
        "ClusterRole kubeflow-trainer-view-cluster-runtimes",
        "ClusterRoleBinding kubeflow-trainer-view-cluster-runtimes",
        "MutatingWebhookConfiguration defaulter.trainer.kubeflow.org",
        "ValidatingWebhookConfiguration validator.trainer.kubeflow.org",
    ]
    for role in (EDIT, VIEW):
        assert find(objects, "Role", role)["metadata"]["namespace"] == "team-a"
        assert find(objects, "Role", role)["rules"] == find(build(), "ClusterRole", role)["rules"]


def test_an_operator_of_one_namespace_watches_it_and_is_asked_about_it_alone() -> None:
    objects = build(namespace="trainers", watch_namespace="team-a")
    [container] = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]

    assert container["args"][-1] == "--namespace=team-a"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in find(objects, kind)["webhooks"]:
            assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
        for webhook in find(build(), kind)["webhooks"]:
            assert "namespaceSelector" not in webhook


def test_an_operator_may_watch_the_namespace_that_it_runs_in() -> None:
    objects = build(namespace="team-a", watch_namespace="team-a")
    places = {(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects}

    assert len(places) == len(objects)


@pytest.mark.parametrize("watched", [None, "team-a"])
def test_rights_have_the_names_by_which_they_are_found_again(watched: str | None) -> None:
    rights = [obj for obj in build(watch_namespace=watched) if "rbac" in obj["apiVersion"]]

    assert {obj["kind"] for obj in rights} == set(ACCESS_KINDS)
    assert {obj["metadata"]["name"] for obj in rights} <= ACCESS_NAMES


def test_shipped_runtimes_can_come_before_the_webhooks() -> None:
    for runtime in (obj for obj in build() if obj["kind"] == "ClusterTrainingRuntime"):
        assert runtime["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] == "disabled"
        assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"]


def test_every_kind_has_its_definition() -> None:
    assert [crd["metadata"]["name"] for crd in load_crds()] == [
        "clustertrainingruntimes.trainer.kubeflow.org",
        "trainingruntimes.trainer.kubeflow.org",
        "trainjobs.trainer.kubeflow.org",
    ]
    assert is_ours(load_crds()[0])


def test_the_containerfile_runs_as_the_user_of_the_manifests_and_names_no_registry() -> None:
    text = (Path(__file__).resolve().parents[2] / "deploy/Containerfile").read_text()
    user = find(build(), "Deployment")["spec"]["template"]["spec"]["containers"][0]["securityContext"]

    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in text
    assert 'ENTRYPOINT ["trainwright"]' in text
    for line in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert "." not in line.partition("/")[0].partition(":")[0], line


@pytest.mark.parametrize("kind", ["Deployment", "Service", "ServiceAccount", "ClusterRole"])
def test_the_names_are_those_that_the_peer_has(kind: str) -> None:
    assert find(build(), kind, OPERATOR)["metadata"]["name"] == "kubeflow-trainer-controller-manager"


def test_what_is_printed_reads_back_to_the_same_objects() -> None:
    objects = build()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    assert list(yaml.load_all(build_yaml(objects), loader)) == objects


if __name__ == "__main__":
    GOLDEN.write_text(render_golden())
