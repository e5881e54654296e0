"""`trainwright runtimes`, and completion of names."""

import json
import re

import pytest
import yaml

from trainwright.runtimes import load_shipped_runtimes

OWN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec:
  mlPolicy: {numNodes: 3, paddle: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {restartPolicy: Never, containers: [{name: node, image: a:1}]}}}
"""


def test_the_shipped_runtimes_are_listed_by_either_way_of_asking(program):
    listed = program.succeed("runtimes")
    assert program.succeed("runtimes", "list") == listed
    assert [re.split(r"  +", line.strip()) for line in listed.splitlines()] == [
        ["NAME", "FRAMEWORK", "NODES", "FROM", "DESCRIPTION"],
        *(
            [
                name,
                runtime.metadata.labels["trainer.kubeflow.org/framework"],
                "1",
                "shipped",
                runtime.metadata.annotations["kubernetes.io/description"],
            ]
            for name, runtime in load_shipped_runtimes().items()
        ),
    ]


def test_a_runtime_of_the_users_own_is_listed_by_what_its_policy_chooses(program):
    program.succeed("apply", "-f", "-", stdin=OWN)
    [mine] = [line for line in program.succeed("runtimes", "list").splitlines() if line.startswith("mine")]
    assert mine.split() == ["mine", "paddle", "3", "namespace", "-"]
    [mine] = [
        line for line in program.succeed("runtimes", "list", "-o", "wide").splitlines() if line[:4] == "mine"
    ]
    assert mine.split() == ["mine", "TrainingRuntime", "paddle", "3", "namespace", "-", "node", "no", "-"]


def test_every_format_names_the_same_runtimes(program):
    names = list(load_shipped_runtimes())
    as_json = json.loads(program.succeed("runtimes", "list", "-o", "json"))
    as_yaml = yaml.safe_load(program.succeed("runtimes", "list", "-o", "yaml"))
    assert as_json == as_yaml
    assert [item["metadata"]["name"] for item in as_json["items"]] == names
    assert program.succeed("runtimes", "list", "-o", "name").splitlines() == [
        f"clustertrainingruntime.trainer.kubeflow.org/{name}" for name in names
    ]
    assert "STEPS" in program.succeed("runtimes", "list", "-o", "wide")


def test_one_runtime_is_printed_as_it_could_be_applied(program):
    printed = program.succeed("runtimes", "get", "plain")
    assert yaml.safe_load(printed)["metadata"]["name"] == "plain"
    assert program.run("validate", "-f", "-", stdin=printed).returncode == 0


def test_an_unknown_runtime_is_not_found_and_the_near_one_named(program):
    done = program.run("runtimes", "get", "torch-distribute")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "Error: Runtime 'torch-distribute' does not exist; did you mean torch-distributed?\n"
    )


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("trainwright get dig", ["digits"]),
        ("trainwright get x", []),
        ("trainwright runtimes get pla", ["plain"]),
        ("trainwright run --runtime torch-", ["torch-distributed"]),
        ("trainwright sus", ["suspend"]),
        ("trainwright list --on ku", ["kubernetes"]),
    ],
)
def test_the_shell_is_offered_verbs_options_and_names(program, words, offered):
    job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: digits}\n"
    program.succeed("apply", "-f", "-", stdin=job + "spec: {suspend: true, runtimeRef: {name: plain}}\n")
    done = program.run(
        environment={
            "_TRAINWRIGHT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
    )
    assert done.stdout.split() == offered


def test_completion_with_a_state_directory_that_cannot_be_used_offers_nothing(program):
    program.state.write_text("a file")
    done = program.run(
        environment={
            "_TRAINWRIGHT_COMPLETE": "complete_bash",
            "COMP_WORDS": "trainwright get d",
            "COMP_CWORD": "2",
        }
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
