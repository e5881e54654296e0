"""Kubeconfig files and service accounts."""

import base64

import pytest

from trainwright.cluster.kube.config import Connection, ExecPlugin, load_connection, load_in_cluster
from trainwright.errors import TargetUnreachable, UsageError

BASE = f"""
current-context: dev
contexts:
- name: dev
  context: {{cluster: c1, user: u1, namespace: team-a}}
clusters:
- name: c1
  cluster:
    server: https://10.0.0.1:6443/
    certificate-authority-data: {base64.b64encode(b"CA").decode()}
    tls-server-name: kubernetes
users:
- name: u1
  user: {{token: secret-token}}
"""


def load(tmp_path, *texts, context=None):
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"config-{number}"
        path.write_text(text)
        paths.append(str(path))
    return load_connection({"KUBECONFIG": ":".join(paths)}, tmp_path, context)


def test_a_kubeconfig_gives_server_identity_and_namespace(tmp_path):
    assert load(tmp_path, BASE) == Connection(
        server="https://10.0.0.1:6443",
        namespace="team-a",
        context="dev",
        ca_pem=b"CA",
        tls_server_name="kubernetes",
        token="secret-token",
    )


def test_of_several_files_the_first_to_set_a_value_wins(tmp_path):
    other = """
current-context: prod
contexts:
- {name: dev, context: {cluster: c2, user: u2}}
- {name: prod, context: {cluster: c2, user: u2}}
clusters:
- {name: c2, cluster: {server: "https://two"}}
users:
- {name: u2, user: {token-file: x}}
"""
    assert load(tmp_path, BASE, other).server == "https://10.0.0.1:6443"
    assert load(tmp_path, BASE, other, context="prod").server == "https://two"
    assert load(tmp_path, other, BASE).context == "prod"


def test_paths_are_relative_to_the_file_that_names_them(tmp_path):
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "ca.pem").write_text("CA")
    text = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://h", certificate-authority: ca.pem}}]
users:
- name: u
  user:
    tokenFile: tok
    exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: [--quiet],
      env: [{name: A, value: b}]}
"""
    connection = load(folder, text)
    assert connection.ca_pem == b"CA"
    assert connection.token_file == folder / "tok"
    assert connection.exec_plugin == ExecPlugin(
        command=str(folder / "bin/login"),
        api_version="client.authentication.k8s.io/v1",
        args=("--quiet",),
        env=(("A", "b"),),
    )


WRONG = {
    "no current context": ("contexts: []", "no current context"),
    "unknown context": ("current-context: nope\ncontexts: [{name: a, context: {}}]", "known: a"),
    "unknown cluster": ("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]", "cluster 'b'"),
    "no YAML": ("a: [", "not valid YAML"),
    "no mapping": ("- 1", "no mapping"),
    "not base64": (
        BASE.replace("authority-data: ", "authority-data: '!!' #"),
        "not base64",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_kubeconfig_says_what_is_wrong(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        load(tmp_path, text)


def test_without_any_configuration_it_says_where_one_is_expected(tmp_path):
    with pytest.raises(TargetUnreachable, match="set KUBECONFIG"):
        load_connection({}, tmp_path)


def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(TargetUnreachable, match=r"KUBECONFIG names .*/gone, which does not exist"):
        load_connection({"KUBECONFIG": str(tmp_path / "gone")}, tmp_path)


def test_a_pod_uses_its_service_account(tmp_path):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("trainers\n")
    connection = load_in_cluster(
        {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path
    )
    assert connection == Connection(
        server="https://[fd00::1]:6443",
        namespace="trainers",
        context="in-cluster",
        ca_pem=b"CA",
        token_file=tmp_path / "token",
    )


def test_no_secret_shows_in_what_is_printed(tmp_path):
    assert "secret-token" not in repr(load(tmp_path, BASE))
