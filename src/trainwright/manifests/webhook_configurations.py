"""When the API server asks the webhooks. The CA is not in here: the operator puts it in, and keeps it there.

An operator that watches one namespace is asked about objects of that namespace and about those of none; it
could tell nothing about the others, whose runtimes it does not see. Source: spec 01 section 2.2.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import GROUP, VERSION, WEBHOOK_VALIDATION_LABEL
from trainwright.api.meta import Json
from trainwright.manifests.names import (
    MUTATING_CONFIGURATION,
    MUTATING_WEBHOOKS,
    OPERATOR,
    VALIDATING_CONFIGURATION,
    VALIDATING_WEBHOOKS,
    Webhook,
)
from trainwright.manifests.settings import InstallSettings, build_object

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
SERVICE_PORT: Final = 443
_NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"  # the API server sets it on every namespace
_SKIPPED: Final[Json] = {
    "matchExpressions": [
        {"key": WEBHOOK_VALIDATION_LABEL, "operator": "NotIn", "values": ["disabled"]},
    ]
}


def build_webhook_configurations(settings: InstallSettings) -> list[Json]:
    """Return the configurations of the defaulter and of the validators."""
    return [
        {
            **build_object(_API_VERSION, kind, name),
            "webhooks": [_build_webhook(webhook, settings) for webhook in webhooks],
        }
        for kind, name, webhooks in (
            ("MutatingWebhookConfiguration", MUTATING_CONFIGURATION, MUTATING_WEBHOOKS),
            ("ValidatingWebhookConfiguration", VALIDATING_CONFIGURATION, VALIDATING_WEBHOOKS),
        )
    ]


def _build_webhook(webhook: Webhook, settings: InstallSettings) -> Json:
    service = {
        "name": OPERATOR,
        "namespace": settings.namespace,
        "path": webhook.path,
        "port": SERVICE_PORT,
    }
    # Objects that are in no namespace pass any selector of namespaces.
    watched = settings.watch_namespace
    selector = {"matchLabels": {_NAMESPACE_NAME_LABEL: watched}} if watched is not None else None
    return {
        "name": webhook.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": service},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": [webhook.plural],
            }
        ],
        **({"namespaceSelector": selector} if selector is not None else {}),
        **({"objectSelector": _SKIPPED} if webhook.can_be_skipped else {}),
    }
