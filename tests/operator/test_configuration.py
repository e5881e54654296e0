"""The configuration file: the peer's is accepted as it is, and everything wrong with one is said at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.errors import InvalidObject
from trainwright.operator.configuration import (
    ClientConnectionSettings,
    Configuration,
    ControllerSettings,
    HealthSettings,
    LeaderElectionSettings,
    MetricsSettings,
    TlsSettings,
    WebhookSettings,
    parse_bind_address,
    parse_configuration,
)

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"

# What the peer's manifests ship (spec 01, section 6.2), in our words.
SHIPPED = (
    HEAD
    + """
webhook: {port: 9443, host: ""}
metrics: {bindAddress: ":8443", secureServing: true}
health: {healthProbeBindAddress: ":8081", readinessEndpointName: readyz, livenessEndpointName: healthz}
leaderElection:
  leaderElect: true
  resourceName: trainer.kubeflow.org
  resourceNamespace: ""
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
controller:
  groupKindConcurrency:
    TrainJob.trainer.kubeflow.org: 5
    TrainingRuntime.trainer.kubeflow.org: 1
    ClusterTrainingRuntime.trainer.kubeflow.org: 1
certManagement:
  enable: true
  webhookServiceName: kubeflow-trainer-controller-manager
  webhookSecretName: kubeflow-trainer-webhook-cert
clientConnection: {qps: 50, burst: 100}
statusServer: {port: 10443, qps: 5, burst: 10}
featureGates: {TrainJobStatus: false}
tls: {minVersion: "1.2", cipherSuites: [TLS_AES_128_GCM_SHA256], nextProtos: [http/1.1]}
"""
)


def test_the_shipped_file_of_the_peer_is_accepted_as_it_is() -> None:
    assert parse_configuration(SHIPPED, "config.yaml") == Configuration(
        leader_election=LeaderElectionSettings(leader_elect=True),
        controller=ControllerSettings(
            group_kind_concurrency={
                "TrainJob.trainer.kubeflow.org": 5,
                "TrainingRuntime.trainer.kubeflow.org": 1,
                "ClusterTrainingRuntime.trainer.kubeflow.org": 1,
            }
        ),
        client_connection=ClientConnectionSettings(qps=50.0, burst=100),
        feature_gates={"TrainJobStatus": False},
        tls=TlsSettings(
            min_version="1.2", cipher_suites=["TLS_AES_128_GCM_SHA256"], next_protos=["http/1.1"]
        ),
    )


def test_what_a_file_leaves_out_has_its_default() -> None:
    configuration = parse_configuration(HEAD, "config.yaml")
    assert configuration == Configuration()
    assert configuration.webhook == WebhookSettings(port=9443, host="")
    assert configuration.metrics == MetricsSettings(bind_address=":8443", secure_serving=True)
    assert configuration.health == HealthSettings(health_probe_bind_address=":8081")
    assert configuration.leader_election is None
    assert configuration.get_workers("TrainJob.trainer.kubeflow.org") == 16


def test_leader_election_without_times_has_those_of_the_shipped_file() -> None:
    configuration = parse_configuration(HEAD + "leaderElection: {leaderElect: true}\n", "config.yaml")
    assert configuration.leader_election == LeaderElectionSettings(
        leader_elect=True, lease_duration="15s", renew_deadline="10s", retry_period="2s"
    )


REFUSED = {
    "another version": ("apiVersion: config.trainer.kubeflow.org/v2\nkind: Configuration\n", ["apiVersion"]),
    "another kind": ("apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Other\n", ["kind"]),
    "neither": ("webhook: {}\n", ["apiVersion", "kind"]),
    "an unknown field": (HEAD + "webhook: {ports: 1}\n", ["webhook.ports"]),
    "a field twice": (HEAD + "webhook: {port: 1, port: 2}\n", ["webhook.port"]),
    "no YAML": (HEAD + "webhook: [\n", [""]),
    "no document": ("", [""]),
    "two documents": (HEAD + "---\n" + HEAD, [""]),
    "a list": ("[]\n", [""]),
    "ports that are none": (
        HEAD + "webhook: {port: 0}\nstatusServer: {port: 65536}\n",
        ["webhook.port", "statusServer.port"],
    ),
    "a negative rate": (
        HEAD + "clientConnection: {qps: -1, burst: -2}\n",
        ["clientConnection.qps", "clientConnection.burst"],
    ),
    "a wrong type": (HEAD + "certManagement: {enable: maybe}\n", ["certManagement.enable"]),
    "no workers": (
        HEAD + "controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 0}}\n",
        ["controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]"],
    ),
    "workers of an unknown kind": (
        HEAD + "controller: {groupKindConcurrency: {TrainJobs.trainer.kubeflow.org: 2}}\n",
        ["controller.groupKindConcurrency.TrainJobs.trainer.kubeflow.org"],
    ),
    "an unknown gate": (HEAD + "featureGates: {TrainJobStatu: true}\n", ["featureGates.TrainJobStatu"]),
    "an address that is none": (HEAD + "metrics: {bindAddress: '8443'}\n", ["metrics.bindAddress"]),
    "tokens in clear": (
        HEAD + "metrics: {secureServing: false, auth: {enabled: true}}\n",
        ["metrics.auth.enabled"],
    ),
    "one name for two probes": (
        HEAD + "health: {readinessEndpointName: ok, livenessEndpointName: ok}\n",
        ["health.livenessEndpointName"],
    ),
    "a probe that is no name": (
        HEAD + "health: {readinessEndpointName: 'a/b'}\n",
        ["health.readinessEndpointName"],
    ),
    "a duration that is none": (
        HEAD + "leaderElection: {leaderElect: true, leaseDuration: 15}\n",
        ["leaderElection.leaseDuration"],
    ),
    "a deadline beyond the lease": (
        HEAD + "leaderElection: {leaseDuration: 5s}\n",
        ["leaderElection.leaseDuration"],
    ),
    "another lock": (HEAD + "leaderElection: {resourceLock: endpoints}\n", ["leaderElection.resourceLock"]),
}


@pytest.mark.parametrize(("text", "paths"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_refused_with_the_paths(text: str, paths: list[str]) -> None:
    with pytest.raises(InvalidObject) as refused:
        parse_configuration(text, "config.yaml")
    assert [error.path for error in refused.value.errors] == paths
    assert all(str(error) in str(refused.value) for error in refused.value.errors)
    assert str(refused.value).startswith("config.yaml: ")


def test_everything_that_is_wrong_is_said_at_once_with_its_line() -> None:
    text = HEAD + "webhook:\n  port: 0\n  hst: x\nmetrics:\n  secureServing: 3\n"
    with pytest.raises(InvalidObject) as refused:
        parse_configuration(text, "config.yaml")
    lines = {error.path: error.position.line for error in refused.value.errors if error.position}
    assert lines == {"webhook.port": 4, "webhook.hst": 5, "metrics.secureServing": 7}
    assert "did you mean host?" in str(refused.value)


@given(st.text())
def test_no_text_is_a_bug(text: str) -> None:
    with pytest.raises(InvalidObject):
        parse_configuration(text, "config.yaml")


ADDRESSES = {
    ":8081": (None, 8081),
    "127.0.0.1:1": ("127.0.0.1", 1),
    "localhost:65535": ("localhost", 65535),
    "[::1]:80": ("::1", 80),
    "0": None,
    "": None,
}


@pytest.mark.parametrize(("text", "address"), ADDRESSES.items(), ids=ADDRESSES)
def test_an_address_is_read(text: str, address: tuple[str | None, int] | None) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize("text", ["8081", ":", ":0", ":65536", "::1:80", "a:b", "[x]:80", " :80"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        parse_bind_address(text)
