"""`trainwright apply`, `validate`, `render` with files, by running the program."""

import json

import pytest
import yaml

from cli.program import Program

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %(name)s}
spec:
  suspend: %(suspend)s
  runtimeRef: {name: plain}
  trainer:
    numNodes: %(nodes)s
    command: [sh, -c, "cat /etc/train/settings; echo $WHO"]
    env: [{name: WHO, value: me}]
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: prepared}
spec:
  mlPolicy: {numNodes: 2}
  template:
    spec:
      replicatedJobs:
      - name: prepare
        template:
          spec:
            backoffLimit: 0
            template:
              spec:
                restartPolicy: Never
                containers: [{name: prepare, image: "busybox", command: [sh, -c, "echo prepared"]}]
      - name: node
        dependsOn: [{name: prepare, status: Complete}]
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                restartPolicy: Never
                containers:
                - name: node
                  image: busybox
                  volumeMounts: [{name: settings, mountPath: /etc/train}]
                volumes: [{name: settings, configMap: {name: settings}}]
"""
CONFIG = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {settings: "epochs=20\\n"}\n'


def job(name="digits", *, suspend=True, nodes=1) -> str:
    return JOB % {"name": name, "suspend": str(suspend).lower(), "nodes": nodes}


def get(program: Program, name: str = "digits") -> dict:
    return json.loads(program.succeed("get", name, "-o", "json"))


def test_a_whole_file_is_applied_run_and_told_apart(program):
    """A ConfigMap, a runtime of two steps and a job that uses both, in an order that does not matter."""
    text = job(suspend=False, nodes=2).replace("{name: plain}", "{name: prepared, kind: TrainingRuntime}")
    program.write("all.yaml", "---\n".join([text, RUNTIME, CONFIG]))
    done = program.run("apply", "-f", "all.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "trainingruntime.trainer.kubeflow.org/prepared created",
        "configmap/settings created",
        "trainjob.trainer.kubeflow.org/digits created",
        "image busybox is ignored for processes on this machine",
    ]
    assert program.run("wait", "digits", "--for", "complete", "--timeout", "60").returncode == 0
    output = program.succeed("logs", "digits").splitlines()
    assert output[0] == "[prepare-0-0 prepare] prepared"
    assert sorted(output[1:]) == sorted(
        f"[node-0-{n}] {text}" for n in range(2) for text in ("epochs=20", "me")
    )


def test_applying_again_changes_only_what_differs(program):
    program.write("job.yaml", job())
    assert "digits created" in program.run("apply", "-f", "job.yaml").stderr
    before = get(program)["metadata"]["resourceVersion"]
    assert "digits unchanged" in program.run("apply", "-f", "job.yaml").stderr
    assert get(program)["metadata"]["resourceVersion"] == before
    program.write("job.yaml", job(nodes=3))
    assert "digits updated" in program.run("apply", "-f", "job.yaml").stderr
    assert get(program)["spec"]["trainer"]["numNodes"] == 3


def test_a_job_runs_where_it_was_applied_first(program):
    program.write("job.yaml", job().replace("cat /etc/train/settings", "pwd"))
    assert program.run("apply", "-f", "job.yaml").returncode == 0
    first, program.folder = program.folder, program.state
    assert "digits unchanged" in program.run("apply", "-f", str(first / "job.yaml")).stderr
    assert program.run("resume", "digits").returncode == 0
    assert program.run("wait", "digits", "--for", "complete", "--timeout", "60").returncode == 0
    assert program.succeed("logs", "digits").splitlines()[0] == f"[node-0-0] {first}"


def test_what_a_command_changed_is_left_alone_where_the_file_does_not_say(program):
    text = job().replace("  suspend: true\n", "").replace("    numNodes: 1\n", "")
    program.write("job.yaml", text.replace("cat /etc/train/settings", "sleep 60"))
    assert program.run("apply", "-f", "job.yaml").returncode == 0
    assert program.run("suspend", "digits").returncode == 0
    assert program.run("scale", "digits", "--nodes", "4").returncode == 0
    assert "digits unchanged" in program.run("apply", "-f", "job.yaml").stderr
    assert get(program)["spec"]["suspend"] is True
    assert get(program)["spec"]["trainer"]["numNodes"] == 4


def test_a_change_that_is_not_allowed_is_refused_with_its_place(program):
    program.write("job.yaml", job())
    assert program.run("apply", "-f", "job.yaml").returncode == 0
    program.write("job.yaml", job().replace("value: me", "value: you"))
    done = program.run("apply", "-f", "job.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("job.yaml:10:5: spec.trainer.env: ")
    assert get(program)["spec"]["trainer"]["env"][0]["value"] == "me"


def test_all_objects_are_checked_before_any_is_written(program):
    program.write("good.yaml", job("good") + "---\n" + CONFIG)
    program.write(
        "bad.yaml", job("bad").replace("plain", "nope") + "---\n" + job("worse").replace("numNodes", "nodes")
    )
    done = program.run("apply", "-f", "good.yaml", "-f", "bad.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert program.succeed("list", "-o", "name") == ""


@pytest.mark.parametrize("verb", ["validate", "apply", "render"])
def test_mistakes_of_reading_and_of_admission_are_told_at_once_in_the_order_of_the_files(program, verb):
    program.write("one.yaml", job("a").replace("{name: plain}", "{name: plain, kind: Nope}"))
    program.write("two.yaml", job("b").replace("numNodes", "nodes") + "---\n" + job("c", nodes=-1))
    program.write("three.yaml", job("d").replace("suspend: true", "suspend: maybe"))
    done = program.run(verb, "-f", "one.yaml", "-f", "two.yaml", "-f", "three.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["one.yaml:6:29", "spec.runtimeRef.kind"],
        ["two.yaml:8:5", "spec.trainer.nodes"],
        ["two.yaml:19:5", "spec.trainer.numNodes"],
        ["three.yaml:5:3", "spec.suspend"],
    ]


def test_stdin_is_a_file_too(program):
    assert (
        "-: trainjob.trainer.kubeflow.org/digits is valid"
        in program.run("validate", "-f", "-", stdin=job()).stderr
    )
    assert (
        program.run("apply", "-f", "-", "-o", "name", stdin=job()).stdout
        == "trainjob.trainer.kubeflow.org/digits\n"
    )


def test_validating_and_rendering_change_nothing(program):
    program.write("job.yaml", job())
    for verb in ("validate", "render"):
        assert program.run(verb, "-f", "job.yaml").returncode == 0
    assert program.succeed("list", "-A", "-o", "name") == ""


def test_rendering_gives_the_same_bytes_every_time_and_both_forms_say_the_same(program):
    program.write("job.yaml", job("a") + "---\n" + job("b"))
    first = program.succeed("render", "-f", "job.yaml")
    assert program.succeed("render", "-f", "job.yaml") == first
    documents = list(yaml.safe_load_all(first))
    assert [obj["metadata"]["name"] for obj in documents] == ["a", "b"]
    assert {obj["kind"] for obj in documents} == {"JobSet"}
    assert json.loads(program.succeed("render", "-f", "job.yaml", "-o", "json")) == documents


def test_a_job_is_rendered_as_an_operator_does_that_takes_progress_reports(program):
    program.write("job.yaml", job("a"))
    server = "https://operator.example:10443"
    [rendered] = yaml.safe_load_all(
        program.succeed("render", "-f", "job.yaml", "-n", "team", "--progress-server", server)
    )
    [step] = rendered["spec"]["replicatedJobs"]
    [container] = step["template"]["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/a/status"
    assert env["KUBEFLOW_TRAINER_SERVER_URL"] == f"{server}{path}"
    for url in ("http://operator.example", "operator.example:10443", "https://operator.example/path", ""):
        refused = program.run("render", "-f", "job.yaml", "--progress-server", url)
        assert refused.returncode == 2
        assert "--progress-server" in refused.stderr


def test_the_runtime_of_the_files_comes_before_the_installed_one(program):
    shipped = yaml.safe_load(program.succeed("runtimes", "get", "plain"))
    shipped["spec"]["mlPolicy"]["numNodes"] = 5
    program.write("runtime.yaml", yaml.safe_dump(shipped))
    program.write("job.yaml", job().replace("    numNodes: 1\n", ""))

    def count(*files: str) -> int:
        rendered = yaml.safe_load(
            program.succeed("render", *(word for file in files for word in ("-f", file)))
        )
        return rendered["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"]

    assert count("job.yaml") == 1
    assert count("job.yaml", "runtime.yaml") == 5
    assert count("job.yaml") == 1


def test_a_runtime_of_the_users_own_replaces_the_shipped_one_even_after_that_was_used(program):
    assert program.run("run", "--", "true").returncode == 0
    assert "shipped" in program.succeed("runtimes")
    mine = yaml.safe_load(program.succeed("runtimes", "get", "plain"))
    mine["spec"]["mlPolicy"]["numNodes"] = 3
    program.write("mine.yaml", yaml.safe_dump(mine))
    assert "plain created" in program.run("apply", "-f", "mine.yaml").stderr
    rows = [line.split() for line in program.succeed("runtimes", "list").splitlines()]
    assert [row[2:4] for row in rows if row[0] == "plain"] == [["3", "installed"]]
    assert len(program.run("run", "--", "echo", "x").stdout.splitlines()) == 3


BROKEN = {
    "no file": ([], "Missing option '--filename'"),
    "missing file": (["-f", "nope.yaml"], "nope.yaml: no such file in "),
    "directory": (["-f", "."], ".: is a directory"),
    "empty": (["-f", "empty.yaml"], "empty.yaml: holds no object"),
    "syntax": (["-f", "syntax.yaml"], "syntax.yaml:2:"),
    "binary": (["-f", "binary.yaml"], "binary.yaml"),
    "another kind": (["-f", "pod.yaml"], "pod.yaml:"),
}


@pytest.mark.parametrize("verb", ["apply", "validate", "render"])
@pytest.mark.parametrize(("words", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_object_is_wrong_usage(program, verb, words, message):
    program.write("empty.yaml", "")
    program.write("syntax.yaml", "a: 1\n  b: 2\n")
    (program.folder / "binary.yaml").write_bytes(bytes(range(256)))
    program.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    done = program.run(verb, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
