"""What runs: the Deployment of the operator, its Service, configuration and certificate Secret.

Every port stands in one place: the configuration file, the container and the Service are rendered from it.
Source: spec 03 sections 3.2 and 3.3, spec 01 sections 6.2 and 6.4.
"""

from __future__ import annotations

import hashlib
from typing import Final

from trainwright import __version__
from trainwright.api.constants import API_VERSION
from trainwright.api.meta import Json
from trainwright.api.writing import build_yaml
from trainwright.manifests.names import (
    CERTIFICATE_SECRET,
    CONFIG_KEY,
    CONFIG_MAP,
    HEALTH_PORT,
    LEASE,
    METRICS_PORT,
    OPERATOR,
    PROGRESS_PORT,
    PUBLIC_CONFIG_MAP,
    PUBLIC_VERSION_KEY,
    WEBHOOK_PORT,
)
from trainwright.manifests.settings import SELECTOR, InstallSettings, build_labels, build_object
from trainwright.manifests.webhook_configurations import SERVICE_PORT

CONFIG_FOLDER: Final = "/etc/trainwright"
USER_ID: Final = 65532
# The version of the API that we speak, as the public SDK compares it with its own.
PEER_VERSION: Final = "v2.3.0"

_PORTS: Final = {
    "health": HEALTH_PORT,
    "metrics": METRICS_PORT,
    "webhook": WEBHOOK_PORT,
    "status-server": PROGRESS_PORT,
}
_SERVICE_PORTS: Final = (
    ("monitoring-port", METRICS_PORT, "metrics"),
    ("webhook-server", SERVICE_PORT, "webhook"),
    ("status-server", PROGRESS_PORT, "status-server"),
)


def build_operator_objects(settings: InstallSettings) -> list[Json]:
    """Return the objects, those first that the Deployment refers to."""
    here = settings.namespace
    config = build_yaml([build_config(settings)])
    public = {PUBLIC_VERSION_KEY: PEER_VERSION, "trainwright_version": __version__}
    # Only the Secret itself is ours: what is in it belongs to the operator, which an upgrade must not touch.
    secret = {**build_object("v1", "Secret", CERTIFICATE_SECRET, here), "type": "Opaque"}
    return [
        build_object("v1", "ConfigMap", CONFIG_MAP, here, data={CONFIG_KEY: config}),
        build_object("v1", "ConfigMap", PUBLIC_CONFIG_MAP, here, data=public),
        secret,
        _build_service(settings),
        _build_deployment(settings, config),
        _build_disruption_budget(settings),
    ]


def build_config(settings: InstallSettings) -> Json:
    """Return the configuration file, in the peer's format."""
    kinds = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
    group = API_VERSION.partition("/")[0]
    workers = {f"{kind}.{group}": 16 if kind == "TrainJob" else 1 for kind in kinds}
    config: Json = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": WEBHOOK_PORT},
        "metrics": {"bindAddress": f":{METRICS_PORT}", "secureServing": True},
        "health": {"healthProbeBindAddress": f":{HEALTH_PORT}"},
        "leaderElection": {
            "leaderElect": True,
            "resourceName": LEASE,
            "resourceNamespace": settings.namespace,
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "retryPeriod": "2s",
        },
        "controller": {"groupKindConcurrency": workers},
        "certManagement": {
            "enable": True,
            "webhookServiceName": OPERATOR,
            "webhookSecretName": CERTIFICATE_SECRET,
        },
        "statusServer": {"port": PROGRESS_PORT},
    }
    if settings.feature_gates:
        config["featureGates"] = dict(sorted(settings.feature_gates.items()))
    return config


def _build_service(settings: InstallSettings) -> Json:
    ports = [
        {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
        for name, port, target in _SERVICE_PORTS
    ]
    return _as_part(
        build_object(
            "v1", "Service", OPERATOR, settings.namespace, spec={"selector": dict(SELECTOR), "ports": ports}
        )
    )


def _build_deployment(settings: InstallSettings, config: str) -> Json:
    template = {
        "metadata": {
            "labels": build_labels(**SELECTOR),
            "annotations": {
                "kubectl.kubernetes.io/default-container": "manager",
                # TLS of our own, which a mesh must not take apart.
                "traffic.sidecar.istio.io/excludeInboundPorts": f"{WEBHOOK_PORT},{PROGRESS_PORT}",
                # A new configuration makes new pods.
                "trainer.kubeflow.org/config-hash": hashlib.sha256(config.encode()).hexdigest()[:16],
            },
        },
        "spec": {
            "serviceAccountName": OPERATOR,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 10,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": dict(SELECTOR)},
                }
            ],
            "containers": [_build_container(settings)],
            "volumes": [
                {"name": "config", "configMap": {"name": CONFIG_MAP}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            ],
        },
    }
    spec: Json = {
        "replicas": settings.replicas,
        "selector": {"matchLabels": dict(SELECTOR)},
        # The webhooks are asked all the while.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": template,
    }
    return _as_part(build_object("apps/v1", "Deployment", OPERATOR, settings.namespace, spec=spec))


def _build_container(settings: InstallSettings) -> Json:
    watched = [f"--namespace={settings.watch_namespace}"] if settings.watch_namespace is not None else []
    return {
        "name": "manager",
        "image": settings.image,
        "args": ["controller", f"--config={CONFIG_FOLDER}/{CONFIG_KEY}", *watched],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in _PORTS.items()],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "initialDelaySeconds": 15,
            "periodSeconds": 20,
            "timeoutSeconds": 3,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "health"},
            "initialDelaySeconds": 1,
            "periodSeconds": 5,
            "timeoutSeconds": 3,
        },
        # Webhooks fail closed: go on answering until no API server sends to this pod any more.
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": {
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 (of the container)
        ],
    }


def _build_disruption_budget(settings: InstallSettings) -> Json:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(SELECTOR)}}
    return build_object("policy/v1", "PodDisruptionBudget", OPERATOR, settings.namespace, spec=spec)


def _as_part(obj: Json) -> Json:
    """Return the object with the labels by which the operator's parts are found."""
    metadata = {**obj["metadata"], "labels": build_labels(**SELECTOR)}
    return {**obj, "metadata": metadata}
