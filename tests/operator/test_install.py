"""What `install` and `uninstall` say without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cli.program import Program
from trainwright.api.encoding import build_object
from trainwright.manifests.installation import build_installation
from trainwright.manifests.settings import InstallSettings
from trainwright.runtimes import load_shipped_runtimes


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    return Program(folder=tmp_path / "work", state=tmp_path / "state", extra={"HOME": str(tmp_path / "home")})


def test_what_is_printed_is_what_would_be_applied(program: Program) -> None:
    printed = program.succeed("install", "-n", "trainers", "--image", "mirror/op:1", "--replicas", "1")
    settings = InstallSettings(namespace="trainers", image="mirror/op:1", replicas=1)
    runtimes = [build_object(runtime) for runtime in load_shipped_runtimes().values()]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    assert list(yaml.load_all(printed, loader)) == build_installation(settings, runtimes)


@pytest.mark.parametrize(
    ("names", "runtimes"),
    [
        ("torch-distributed, plain", ["torch-distributed", "plain"]),
        ("plain,plain", ["plain"]),
        ("none", []),
    ],
)
def test_runtimes_can_be_chosen(program: Program, names: str, runtimes: list[str]) -> None:
    printed = program.succeed("install", "--runtimes", names)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = list(yaml.load_all(printed, loader))
    found = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "ClusterTrainingRuntime"]
    assert found == runtimes
    assert objects[: -len(runtimes) or None] == build_installation(InstallSettings(), [])


def test_for_one_namespace_it_says_what_is_left_to_the_cluster(program: Program) -> None:
    done = program.run("install", "--watch-namespace", "team-a", "--runtimes", "plain")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = build_object(load_shipped_runtimes()["plain"])

    assert done.returncode == 0
    assert list(yaml.load_all(done.stdout, loader)) == build_installation(
        InstallSettings(watch_namespace="team-a"), [plain]
    )
    assert done.stderr == (
        "the operator runs the TrainJobs of namespace team-a alone; for the whole cluster there remains what "
        "no namespace can hold: 3 CustomResourceDefinitions, 2 ClusterRoles, 2 ClusterRoleBindings, "
        "1 MutatingWebhookConfiguration, 1 ValidatingWebhookConfiguration, 1 ClusterTrainingRuntime\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "-n", "Not_A_Name"), "--namespace: "),
        (("install", "--watch-namespace", "Not_A_Name"), "--watch-namespace: "),
        (("install", "--feature-gates", "Nope=true"), "'Nope' is not known"),
        (("install", "--replicas", "0"), "--replicas"),
        (
            ("install", "--runtimes", "plain,torch-distribute"),
            "'torch-distribute' does not come with trainwright; use one of torch-distributed, or none",
        ),
    ],
)
def test_wrong_usage_is_told(program: Program, words: tuple[str, ...], said: str) -> None:
    done = program.run(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("words", [("install", "--apply"), ("uninstall",)])
def test_no_cluster_at_all_is_told(program: Program, words: tuple[str, ...]) -> None:
    done = program.run(*words)

    assert (done.returncode, done.stdout) == (4, "")
    assert "no cluster is configured" in done.stderr


def test_a_cluster_that_does_not_answer_is_told(program: Program) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "gone",
        "contexts": [{"name": "gone", "context": {"cluster": "gone"}}],
        "clusters": [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    path = program.write("kubeconfig", yaml.safe_dump(config))
    done = program.run("install", "--apply", environment={"KUBECONFIG": str(path)})

    assert done.returncode == 4
    assert "https://127.0.0.1:1 does not answer" in done.stderr
