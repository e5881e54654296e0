"""The names of what an installation consists of: one place for the operator, the manifests and the webhooks.

All but those of the runtime label are part of the contract with the peer, so that one can take the other's
place. Source: spec 01 sections 2.2, 2.7, 3.11 and 6.4; spec 03 section 3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, GROUP, TRAIN_JOB, TRAINING_RUNTIME

OPERATOR: Final = "kubeflow-trainer-controller-manager"  # Deployment, Service, ServiceAccount, ClusterRole
OPERATOR_JOBS: Final = f"{OPERATOR}-jobs"  # Role of an operator that watches one namespace, there
DEFAULT_NAMESPACE: Final = "kubeflow-system"
CONFIG_MAP: Final = "kubeflow-trainer-config"
CONFIG_KEY: Final = "controller_manager_config.yaml"
CERTIFICATE_SECRET: Final = "kubeflow-trainer-webhook-cert"  # noqa: S105 (a name)
PUBLIC_CONFIG_MAP: Final = "kubeflow-trainer-public"
PUBLIC_VERSION_KEY: Final = "kubeflow_trainer_version"
LEASE: Final = "trainer.kubeflow.org"
CRD_NAMES: Final = {
    TRAIN_JOB: f"trainjobs.{GROUP}",
    TRAINING_RUNTIME: f"trainingruntimes.{GROUP}",
    CLUSTER_TRAINING_RUNTIME: f"clustertrainingruntimes.{GROUP}",
}

MUTATING_CONFIGURATION: Final = "defaulter.trainer.kubeflow.org"
VALIDATING_CONFIGURATION: Final = "validator.trainer.kubeflow.org"

WEBHOOK_PORT: Final = 9443
METRICS_PORT: Final = 8443
HEALTH_PORT: Final = 8081
PROGRESS_PORT: Final = 10443

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "trainwright"  # ours: tells our objects from the peer's of the same names
VERSION_LABEL: Final = "app.kubernetes.io/version"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook: its name in the configuration, where it is served, and the kind that it is about.

    One that `can_be_skipped` is not asked about objects that carry the label to skip it.
    """

    name: str
    path: str
    kind: str
    plural: str
    can_be_skipped: bool = False


MUTATING_WEBHOOKS: Final = (
    Webhook(
        name="defaulter.trainjob.trainer.kubeflow.org",
        path="/mutate-trainer-kubeflow-org-v1alpha1-trainjob",
        kind=TRAIN_JOB,
        plural="trainjobs",
    ),
)
VALIDATING_WEBHOOKS: Final = (
    Webhook(
        name="validator.clustertrainingruntime.trainer.kubeflow.org",
        path="/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime",
        kind=CLUSTER_TRAINING_RUNTIME,
        plural="clustertrainingruntimes",
        can_be_skipped=True,
    ),
    Webhook(
        name="validator.trainingruntime.trainer.kubeflow.org",
        path="/validate-trainer-kubeflow-org-v1alpha1-trainingruntime",
        kind=TRAINING_RUNTIME,
        plural="trainingruntimes",
        can_be_skipped=True,
    ),
    Webhook(
        name="validator.trainjob.trainer.kubeflow.org",
        path="/validate-trainer-kubeflow-org-v1alpha1-trainjob",
        kind=TRAIN_JOB,
        plural="trainjobs",
    ),
)
