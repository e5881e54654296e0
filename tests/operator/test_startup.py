"""From flags, files and environment to settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trainwright.errors import InvalidObject, UsageError
from trainwright.operator.configuration import Configuration
from trainwright.operator.startup import build_settings

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "namespace": "team-a"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_without_a_file_everything_is_the_default(kubeconfig: Path) -> None:
    settings = build_settings({}, kubeconfig=kubeconfig)
    assert settings.configuration == Configuration(feature_gates={"TrainJobStatus": False})
    assert settings.connection.server == "https://127.0.0.1:6443"
    assert settings.connection.namespace == "team-a"
    assert settings.namespace is None


def test_the_environment_of_the_pod_names_its_namespace_and_replica(kubeconfig: Path) -> None:
    environment = {"POD_NAMESPACE": "kubeflow-system", "POD_NAME": "manager-7"}
    settings = build_settings(environment, kubeconfig=kubeconfig)
    assert settings.connection.namespace == "kubeflow-system"
    assert settings.identity.startswith("manager-7_")
    assert settings.identity != build_settings(environment, kubeconfig=kubeconfig).identity


def test_the_flag_goes_before_the_gates_of_the_file(kubeconfig: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEAD + "featureGates: {TrainJobStatus: true}\n")
    for flag, is_on in (("", True), ("TrainJobStatus=false", False)):
        settings = build_settings({}, config=config, feature_gates=flag, kubeconfig=kubeconfig)
        assert settings.configuration.feature_gates == {"TrainJobStatus": is_on}


def test_a_file_that_is_not_there_is_named(kubeconfig: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--config: cannot read .*none\.yaml"):
        build_settings({}, config=tmp_path / "none.yaml", kubeconfig=kubeconfig)
    with pytest.raises(UsageError, match=r"--kubeconfig: .*none does not exist"):
        build_settings({}, kubeconfig=tmp_path / "none")


def test_a_wrong_file_is_refused_by_its_name(kubeconfig: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEAD + "webhok: {}\n")
    with pytest.raises(InvalidObject, match=r"config\.yaml: .*webhok"):
        build_settings({}, config=config, kubeconfig=kubeconfig)


WRONG = {
    "a flag": (["--zap-log-level", "loud"], "--zap-log-level"),
    "a gate": (["--feature-gates", "Flying=true"], "'Flying' is not known"),
    "a file": (["--config", "none.yaml"], "cannot read none.yaml"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_the_command_refuses_what_is_wrong_in_one_line(
    arguments: list[str], said: str, kubeconfig: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwright", "controller", "--kubeconfig", str(kubeconfig), *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
