"""A real Kueue beside a control plane: its CRDs, rights and webhooks, and its manager as a host process.

In: a running control plane with our CRDs, and the manager among its programs.
Out: Kueue, answering its webhooks on loopback, as the service account that its manifests give it. It knows
TrainJobs, JobSets, Jobs and pods, as an installation does: what belongs to a TrainJob has to get no Workload
of its own.

Kueue reads the certificate of its metrics from a fixed path below /etc, so it gets a mount namespace with an
/etc of its own. The manager ends with the control plane; its finalizers are not waited for then.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import urllib.error
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from kube.control_plane import ControlPlane, answers, find_free_ports, find_module_folder
from trainwright.api.meta import Json

NAMESPACE: Final = "kueue-system"
ACCOUNT: Final = "kueue-controller-manager"
API: Final = "kueue.x-k8s.io/v1beta2"
MANAGER: Final = "kueue.x-k8s.io/manager"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

FRAMEWORKS: Final = ("trainer.kubeflow.org/trainjob", "jobset.x-k8s.io/jobset", "batch/job", "pod")
# Of the paths of Kueue's webhooks, those of the frameworks above. All fail closed: one that nobody serves
# blocks its kind for everybody.
_WEBHOOKS: Final = ("kueue-x-k8s-io", "trainer-kubeflow-org", "jobset-x-k8s-io", "batch-v1-job", "--v1-pod")

_RBAC: Final = "rbac.authorization.k8s.io/v1"
# What of the manifests is applied, and where; the manager itself is our process.
_COLLECTIONS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"/apis/{_RBAC}/clusterroles",
    "Role": f"/apis/{_RBAC}/namespaces/{{namespace}}/roles",
    "ClusterRoleBinding": f"/apis/{_RBAC}/clusterrolebindings",
    "RoleBinding": f"/apis/{_RBAC}/namespaces/{{namespace}}/rolebindings",
}
_OWN_ETC: Final = 'mount --bind "$0" /etc && exec "$@"'


class KueueUnavailable(Exception):
    """Kueue cannot be started on this machine; the message says what is missing."""


class Kueue:
    """Kueue's manager of one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        if not (plane.programs / "kueue").exists():
            raise KueueUnavailable(f"{plane.programs} lacks kueue: use what scripts/cluster-programs prints")
        self.plane = plane
        self._unshare = find_unshare()
        names = ("webhook", "metrics", "health")
        self.port = dict(zip(names, find_free_ports(len(names)), strict=True))
        self._webhooks: list[Json] = []

    def install(self) -> None:
        """Install what the manager needs to start. Our own CRDs and JobSet's have to be there before."""
        documents = _render_manifests(self.plane.programs / "kubectl")
        crds = [document for document in documents if document["kind"] == "CustomResourceDefinition"]
        self.plane.install_crds([self._localize_conversion(crd) for crd in crds])
        for document in documents:
            path = _COLLECTIONS.get(document["kind"])
            is_for_people = document["metadata"]["name"].endswith(("-editor-role", "-viewer-role"))
            if path is not None and not is_for_people:
                namespace = document["metadata"].get("namespace")
                self.plane.call("POST", path.format(namespace=namespace), document)
        self._webhooks = [
            self.plane.to_local_url(_keep_served(document), self.port["webhook"])
            for document in documents
            if document["kind"].endswith("WebhookConfiguration")
        ]

    def start(self, **configuration: Any) -> None:
        """Start the manager, with these fields of its configuration besides, and wait until it serves."""
        file = self.plane.folder / "kueue.yaml"
        file.write_text(yaml.safe_dump({**self._build_configuration(), **configuration}))
        self.plane.start_program(
            "kueue",
            *("--config", str(file), "--kubeconfig", str(self.plane.account_kubeconfig(NAMESPACE, ACCOUNT))),
            launcher=(*self._unshare, "sh", "-c", _OWN_ETC, str(self._make_etc())),
        )
        self.plane.wait_for("kueue", lambda: answers(self.port["health"], "/readyz"))
        # Ready is said before the webhooks are served.
        urls = [
            webhook["clientConfig"]["url"]
            for configuration in self._webhooks
            for webhook in configuration["webhooks"]
        ]
        self.plane.wait_for("kueue", functools.partial(self.plane.serves, urls))
        self.plane.create_all(self._webhooks)
        self.plane.wait_for("kueue", self._is_asked)

    def stop(self) -> None:
        """End the manager, and let nobody ask it: its webhooks fail closed."""
        for configuration in self._webhooks:
            plural = f"{configuration['kind'].lower()}s"
            name = configuration["metadata"]["name"]
            self.plane.call("DELETE", f"/apis/{configuration['apiVersion']}/{plural}/{name}")
        self.plane.stop_program("kueue")

    def _is_asked(self) -> bool:
        """Say whether the API server knows the webhooks: it learns of them by a watch of its own."""
        right, wrong = (build_flavor("probe", nodeLabels={"pool": value}) for value in ("blue", "-"))
        path = f"/apis/{API}/resourceflavors?dryRun=All"
        if not self.plane.call("POST", path, right)["metadata"].get("finalizers"):
            return False
        try:
            self.plane.call("POST", path, wrong)
        except urllib.error.HTTPError as error:
            with error:
                return error.code == HTTPStatus.FORBIDDEN
        return False

    def _build_configuration(self) -> Json:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "webhook": {
                "host": "127.0.0.1",
                "port": self.port["webhook"],
                "certDir": str(self.plane.folder / "pki/hook"),
            },
            "metrics": {"bindAddress": f"127.0.0.1:{self.port['metrics']}"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.port['health']}"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 1000, "burst": 2000},
            # It would need an aggregated API, and nobody here asks it.
            "featureGates": {"VisibilityOnDemand": False},
            "integrations": {"frameworks": list(FRAMEWORKS)},
        }

    def _make_etc(self) -> Path:
        """Return the folder that is /etc to Kueue: the certificate of its metrics, and nothing else."""
        etc = self.plane.folder / "kueue-etc"
        certificates = etc / "kueue/metrics/certs"
        certificates.mkdir(parents=True, exist_ok=True)
        for name in ("tls.crt", "tls.key"):
            shutil.copy(self.plane.folder / "pki/hook" / name, certificates / name)
        return etc

    def _localize_conversion(self, crd: Json) -> Json:
        """Return the CRD with a URL of this machine for its conversions, where it has any."""
        if crd["spec"].get("conversion", {}).get("strategy") != "Webhook":
            return crd
        webhook = crd["spec"]["conversion"]["webhook"]
        local = self.plane.to_local_url({"webhooks": [webhook]}, self.port["webhook"])["webhooks"][0]
        conversion = {**crd["spec"]["conversion"], "webhook": local}
        return {**crd, "spec": {**crd["spec"], "conversion": conversion}}


def find_unshare() -> tuple[str, ...]:
    """Return the command that runs another in a mount namespace of its own. Raises KueueUnavailable."""
    for command in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        if os.geteuid() != 0 and "--map-root-user" not in command:
            continue
        if shutil.which(command[0]) is None:
            break
        trial = (*command, "sh", "-c", "mount --bind /etc /etc")
        if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return command
    raise KueueUnavailable(
        "Kueue needs a mount namespace of its own, and `unshare --mount` does not give one"
    )


def _render_manifests(kubectl: Path) -> list[Json]:
    source = find_module_folder("kueue", "sigs.k8s.io/kueue") / "config/default"
    rendered = subprocess.run([kubectl, "kustomize", source], capture_output=True, check=True)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(rendered.stdout, loader) if document]


def _keep_served(configuration: Json) -> Json:
    """Return the webhook configuration with the webhooks of our frameworks alone."""
    webhooks = [
        webhook
        for webhook in configuration["webhooks"]
        if any(part in webhook["clientConfig"]["service"]["path"] for part in _WEBHOOKS)
    ]
    return {**configuration, "webhooks": webhooks}


# -- the objects of whoever sets up queues -------------------------------------------------------------------


def build_flavor(name: str, **spec: Any) -> Json:
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def build_cluster_queue(name: str, flavors: Mapping[str, Mapping[str, str]], **spec: Any) -> Json:
    """A queue with the quotas by flavor and resource, in which higher priorities preempt lower ones."""
    resources: Iterable[str] = next(iter(flavors.values()))
    group = {
        "coveredResources": list(resources),
        "flavors": [
            {
                "name": flavor,
                "resources": [
                    {"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()
                ],
            }
            for flavor, quotas in flavors.items()
        ],
    }
    filled = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group],
        **spec,
    }
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": filled}


def build_local_queue(name: str, cluster_queue: str) -> Json:
    spec = {"clusterQueue": cluster_queue}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": name}, "spec": spec}


def build_priority_class(name: str, value: int) -> Json:
    kind = "WorkloadPriorityClass"
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "value": value}


def build_topology(name: str, levels: Sequence[str]) -> Json:
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": name}, "spec": spec}
