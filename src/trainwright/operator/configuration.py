"""The configuration file, in the format of the peer (`config.trainer.kubeflow.org/v1alpha1`).

Text in, a value out, or everything that is wrong with it at once, by field, line and column. A file made for
the peer is accepted as it is. Where the peer takes a setting and does nothing with it, it takes effect here:
names of the probes, workers per kind, leader election without times. Pure: files are read by whoever calls.
Source: spec 01, section 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from trainwright.api.documents import parse_documents
from trainwright.api.encoding import parse_object
from trainwright.api.field_path import Path
from trainwright.api.meta import ApiStruct, NonNegativeInt32, PositiveInt32
from trainwright.api.positions import Positions
from trainwright.api.schema import check_object
from trainwright.api.shapes import Findings
from trainwright.api.wording import suggest
from trainwright.errors import InvalidObject
from trainwright.field_errors import FieldError, Rule
from trainwright.operator.durations import parse_duration_seconds
from trainwright.operator.feature_gates import FEATURE_GATES

API_VERSION: Final = "config.trainer.kubeflow.org/v1alpha1"
KIND: Final = "Configuration"

# Requests in flight at once, where a file says nothing. Workers spend their time waiting for the API server.
DEFAULT_WORKERS: Final = {
    "TrainJob.trainer.kubeflow.org": 16,
    "TrainingRuntime.trainer.kubeflow.org": 1,
    "ClusterTrainingRuntime.trainer.kubeflow.org": 1,
}

_Port = Annotated[int, Meta(ge=1, le=65535)]
_Rate = Annotated[float, Meta(ge=0)]


class WebhookSettings(ApiStruct, frozen=True, kw_only=True):
    """Where the webhooks listen; no host is every address."""

    port: _Port = 9443
    host: str = ""


class MetricsAuth(ApiStruct, frozen=True, kw_only=True):
    """Whether who asks for metrics must be allowed to: token review and subject access review."""

    enabled: bool = False


class MetricsSettings(ApiStruct, frozen=True, kw_only=True):
    """Where metrics are served; the address `"0"` turns them off."""

    bind_address: str = ":8443"
    secure_serving: bool = True
    auth: MetricsAuth = MetricsAuth()


class HealthSettings(ApiStruct, frozen=True, kw_only=True):
    """Where the probes are served; the address `"0"`, or none, turns them off."""

    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"


class LeaderElectionSettings(ApiStruct, frozen=True, kw_only=True):
    """How replicas agree on who acts. Durations as Go writes them: 15s, 1m30s."""

    leader_elect: bool = False
    resource_name: str = "trainer.kubeflow.org"
    resource_namespace: str = ""
    resource_lock: str = "leases"
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"


class ControllerSettings(ApiStruct, frozen=True, kw_only=True):
    """Workers by `<Kind>.<group>`."""

    group_kind_concurrency: dict[str, PositiveInt32] | None = None


class CertManagementSettings(ApiStruct, frozen=True, kw_only=True):
    """Whether the process makes and rotates its serving certificate, and for which Service."""

    enable: bool = True
    webhook_service_name: str = "kubeflow-trainer-controller-manager"
    webhook_secret_name: str = "kubeflow-trainer-webhook-cert"  # noqa: S105 (the name of a Secret)


class ClientConnectionSettings(ApiStruct, frozen=True, kw_only=True):
    """Limits of requests per resource kind. None, or 0, leaves it to the server's priority and fairness."""

    qps: _Rate | None = None
    burst: NonNegativeInt32 | None = None


class StatusServerSettings(ApiStruct, frozen=True, kw_only=True):
    """The server that takes progress reports (feature gate TrainJobStatus)."""

    port: _Port = 10443
    qps: _Rate = 5.0
    burst: NonNegativeInt32 = 10


class TlsSettings(ApiStruct, frozen=True, kw_only=True):
    """TLS of all servers of the process. Unknown versions and ciphers are warned about and left out."""

    min_version: str | None = None
    cipher_suites: list[str] | None = None
    next_protos: list[str] | None = None


class Configuration(ApiStruct, frozen=True, kw_only=True):
    """Everything that a file can say."""

    api_version: str = API_VERSION
    kind: str = KIND
    webhook: WebhookSettings = WebhookSettings()
    metrics: MetricsSettings = MetricsSettings()
    health: HealthSettings = HealthSettings()
    leader_election: LeaderElectionSettings | None = None
    controller: ControllerSettings = ControllerSettings()
    cert_management: CertManagementSettings = CertManagementSettings()
    client_connection: ClientConnectionSettings = ClientConnectionSettings()
    status_server: StatusServerSettings = StatusServerSettings()
    feature_gates: dict[str, bool] | None = None
    tls: TlsSettings = TlsSettings()

    def get_workers(self, group_kind: str) -> int:
        """Return how many workers a kind has."""
        chosen = self.controller.group_kind_concurrency or {}
        return chosen.get(group_kind, DEFAULT_WORKERS[group_kind])


def parse_configuration(text: str, source: str) -> Configuration:
    """Return the configuration of a file's text. Raises InvalidObject with everything that is wrong in it."""
    documents = parse_documents(text)
    errors: list[FieldError] = list(documents.errors)
    for document in documents.items:
        errors += document.errors
    if not errors and len(documents.items) != 1:
        detail = f"expected one document of kind {KIND}, found {len(documents.items)}"
        errors.append(FieldError(path="", rule=Rule.INVALID, detail=detail))
    if errors:
        raise InvalidObject(errors, source)
    body, positions = documents.items[0].value, Positions(documents.items[0].place)
    findings = Findings(positions.find_text)
    if isinstance(body, dict):
        _check_identity(body, findings)
    stored = check_object(Configuration, body, findings)
    if not findings.errors:
        configuration = parse_object(stored, Configuration)
        _check_meaning(configuration, findings)
    if findings.errors:
        raise InvalidObject(positions.attach(findings.errors), source)
    return configuration


def parse_bind_address(address: str) -> tuple[str | None, int] | None:
    """Return host (None is every one) and port of `host:port`, `:port`; None for `0` and the empty one.

    Raises ValueError for anything else.
    """
    if address in ("", "0"):
        return None
    matched = _BIND_ADDRESS.fullmatch(address)
    if matched is None or not 0 < int(matched["port"]) < 65536:
        raise ValueError(f"{address!r} is no address; write host:port, :port, or 0 for none")
    return (matched["ip6"] or matched["host"] or None), int(matched["port"])


_BIND_ADDRESS: Final = re.compile(
    r"(?:\[(?P<ip6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]\s]*)):(?P<port>[0-9]{1,5})"
)


def _check_identity(body: dict[str, Any], findings: Findings) -> None:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = body.get(field)
        if found is None:
            findings.report(Path(None, field), Rule.REQUIRED, f"required; write {wanted}")
        elif found != wanted:
            findings.report(Path(None, field), Rule.NOT_SUPPORTED, f"expected {wanted}", found)


def _check_meaning(configuration: Configuration, findings: Findings) -> None:
    """Check what a field's type does not say."""
    metrics, health = configuration.metrics, configuration.health
    for section, field, address in (
        ("metrics", "bindAddress", metrics.bind_address),
        ("health", "healthProbeBindAddress", health.health_probe_bind_address),
    ):
        try:
            parse_bind_address(address)
        except ValueError as error:
            findings.report(Path(Path(None, section), field), Rule.INVALID, str(error), address)
    if metrics.auth.enabled and not metrics.secure_serving:
        detail = "needs metrics.secureServing: without TLS every token would be sent in clear"
        findings.report(_path("metrics", "auth", "enabled"), Rule.FORBIDDEN, detail, True)
    for field, name in (
        ("readinessEndpointName", health.readiness_endpoint_name),
        ("livenessEndpointName", health.liveness_endpoint_name),
    ):
        if not _ENDPOINT.fullmatch(name.strip("/")):
            detail = "expected the last part of a URL: letters, digits, '-', '_' and '.'"
            findings.report(_path("health", field), Rule.INVALID, detail, name)
    if health.readiness_endpoint_name.strip("/") == health.liveness_endpoint_name.strip("/"):
        detail = "the two probes need different names"
        findings.report(_path("health", "livenessEndpointName"), Rule.DUPLICATE, detail)
    if configuration.leader_election is not None:
        _check_leader_election(configuration.leader_election, findings)
    _check_names(
        configuration.controller.group_kind_concurrency or {},
        _path("controller", "groupKindConcurrency"),
        list(DEFAULT_WORKERS),
        findings,
    )
    _check_names(configuration.feature_gates or {}, _path("featureGates"), list(FEATURE_GATES), findings)


_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_.-]+")


def _check_leader_election(settings: LeaderElectionSettings, findings: Findings) -> None:
    seconds: dict[str, float] = {}
    for field, text in (
        ("leaseDuration", settings.lease_duration),
        ("renewDeadline", settings.renew_deadline),
        ("retryPeriod", settings.retry_period),
    ):
        try:
            seconds[field] = parse_duration_seconds(text)
        except ValueError as error:
            findings.report(_path("leaderElection", field), Rule.INVALID, str(error), text)
    if settings.resource_lock not in ("", "leases"):
        detail = "only leases are supported"
        findings.report(_path("leaderElection", "resourceLock"), Rule.NOT_SUPPORTED, detail)
    if len(seconds) < 3:
        return
    if seconds["retryPeriod"] <= 0:
        findings.report(_path("leaderElection", "retryPeriod"), Rule.INVALID, "must be above 0")
    for longer, shorter in (("leaseDuration", "renewDeadline"), ("renewDeadline", "retryPeriod")):
        if seconds[longer] <= seconds[shorter]:
            detail = f"must be longer than {shorter} ({seconds[shorter]:g} s)"
            findings.report(_path("leaderElection", longer), Rule.INVALID, detail)


def _check_names(given: Mapping[str, Any], path: Path, known: list[str], findings: Findings) -> None:
    for name in given:
        if name not in known:
            detail = f"is not known; known: {', '.join(known)}{suggest(name, known)}"
            findings.report(Path(path, name), Rule.NOT_SUPPORTED, detail)


def _path(*names: str) -> Path:
    path = Path(None, names[0])
    for name in names[1:]:
        path = Path(path, name)
    return path
