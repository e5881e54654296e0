"""From the text of a user to typed objects, or to all that is wrong with it."""

# ruff: noqa: E501 (texts and messages of a table stay on one line)

from __future__ import annotations

import json
import random
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.mutations import mutated
from trainwright.api.core import ConfigMap, PersistentVolumeClaim, Secret
from trainwright.api.encoding import build_object
from trainwright.api.meta import ObjectMeta
from trainwright.api.reading import MAX_ERRORS, read_object, read_objects
from trainwright.api.runtime import ClusterTrainingRuntime
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.field_errors import FieldError, Position, Rule

TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: demo}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    command: [python, train.py]
"""

RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: rt
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        dependsOn: []
        template:
          metadata:
            labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
          spec:
            backoffLimit: 0
            template:
              spec:
                someFieldOfTomorrow: {a: [1, null]}
                containers:
                - name: node
                  image: registry.example/img:1
                  env:
                  - {name: A, value: "1"}
                volumes:
                - name: code
                  configMap: {name: code, defaultMode: 0644}
"""


def read_errors(text: str | bytes) -> list[str]:
    """Return the errors of a text as a user sees them."""
    return [str(error) for error in read_objects(text, "file.yaml").errors]


def test_a_train_job_is_read_typed_as_json_and_with_positions() -> None:
    result = read_objects(TRAIN_JOB, "file.yaml")
    [read] = result.objects

    assert result.errors == ()
    assert read.value == TrainJob(
        metadata=ObjectMeta(name="demo"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name="torch-distributed"),
            trainer=Trainer(num_nodes=2, command=["python", "train.py"]),
        ),
    )
    assert (read.kind, read.source) == ("TrainJob", "file.yaml")
    assert read.positions.find("spec.trainer.numNodes") == Position(7, 5)


def test_a_later_error_gets_the_line_of_its_field() -> None:
    [read] = read_objects(TRAIN_JOB, "file.yaml").objects
    error = FieldError(path="spec.trainer.env", rule=Rule.INVALID, detail="wrong")

    assert [str(e) for e in read.locate([error])] == ["6:3: spec.trainer.env: wrong"]


def test_a_runtime_keeps_the_fields_of_its_pods_that_nobody_here_knows() -> None:
    [read] = read_objects(RUNTIME, "-").objects

    assert isinstance(read.value, ClusterTrainingRuntime)
    assert read.value.spec is not None
    assert read.value.spec.template is not None
    assert read.value.spec.template.spec is not None
    pod = read.value.spec.template.spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["someFieldOfTomorrow"] == {"a": [1, None]}
    assert pod["volumes"][0]["configMap"]["defaultMode"] == 0o644


def test_several_objects_are_read_from_documents_lists_and_json() -> None:
    bodies = [read.json for read in read_objects(f"{RUNTIME}---\n{TRAIN_JOB}", "-").objects]

    assert [body["kind"] for body in bodies] == ["ClusterTrainingRuntime", "TrainJob"]
    for text in (
        json.dumps(bodies),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}),
        "---\n".join(json.dumps(body) + "\n" for body in bodies),
    ):
        assert [read.json for read in read_objects(text, "-").objects] == bodies


def test_json_from_clients_that_only_know_floats_is_brought_into_normal_form() -> None:
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {
            "runtimeRef": {"name": "rt"},
            "trainer": {"numNodes": 2.0, "resourcesPerNode": {"requests": {"cpu": 0.5, "memory": 1.0}}},
        },
    }
    [read] = read_object(body).objects

    assert read.json["spec"]["trainer"] == {
        "numNodes": 2,
        "resourcesPerNode": {"requests": {"cpu": "500m", "memory": 1}},
    }
    assert build_object(read.value) == read.json


def test_what_an_api_server_adds_is_taken_without_complaint() -> None:
    text = TRAIN_JOB.replace(
        "metadata: {name: demo}",
        "metadata: {name: demo, uid: u, resourceVersion: '1', generation: 2, creationTimestamp: '2026-01-01T00:00:00Z', "
        "managedFields: [{manager: x}]}",
    )
    result = read_objects(text + "status: {jobsStatus: [], somethingNewer: 1}\n", "-")

    assert result.errors == ()


def test_all_errors_of_all_documents_come_at_once_in_the_order_of_the_text() -> None:
    text = textwrap.dedent("""\
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: TrainJob
        metadata:
          name: demo
          labels: {tier: on}
        spec:
          runtimeRef: {nmae: torch}
          image: img
          trainer:
            numNodes: "2"
            numNodes: 3
            env:
            - name: MODE
              value: 0644
            - value: x
            resourcesPerNode:
              limits: {memory: 16GB}
        ---
        apiVersion: trainer.kubeflow.org/v1
        kind: TrainJob
        """)

    assert read_errors(text) == [
        "11:5: spec.trainer.numNodes: the key 'numNodes' is there already, in line 10",
        '5:12: metadata.labels[tier]: expected a string, found the boolean true; put it in quotes: "on"',
        "7:3: spec.runtimeRef.name: required; write a string",
        "7:16: spec.runtimeRef.nmae: unknown field; did you mean name?",
        "8:3: spec.image: unknown field; did you mean trainer.image?",
        '10:5: spec.trainer.numNodes: expected a whole number, found the text "2"; remove the quotes',
        '14:7: spec.trainer.env[0].value: expected a string, found the number 420; put it in quotes: "0644"',
        "15:7: spec.trainer.env[1].name: required; write a name without =",
        "17:16: spec.trainer.resourcesPerNode.limits[memory]: '16GB' is no quantity; write a number with a suffix: "
        "500m, 2, 1.5, 16Gi, 1e3 (did you mean '16G'?)",
        '19:1: apiVersion: "trainer.kubeflow.org/v1" is not read here; a TrainJob has trainer.kubeflow.org/v1alpha1',
    ]


PATCH = "spec.runtimePatches[0].trainingRuntimeSpec.template"
POD = f"{PATCH}.spec.replicatedJobs[0].template.spec.template"
TEMPLATE_JOB = "spec.template.spec.replicatedJobs[0].template"
KNOWN = (
    "known are TrainJob, TrainingRuntime, ClusterTrainingRuntime, ConfigMap, Secret, PersistentVolumeClaim"
)


def train_job(spec: str) -> str:
    """Return a TrainJob with a spec in flow style."""
    return (
        f"{{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {{name: a}}, spec: {spec}}}"
    )


def with_patch(template: str) -> str:
    """Return a TrainJob with one patch of this template."""
    patch = f"{{manager: a.b/c, trainingRuntimeSpec: {{template: {template}}}}}"
    return train_job(f"{{runtimeRef: {{name: rt}}, runtimePatches: [{patch}]}}")


def with_pod_patch(pod: str) -> str:
    """Return a TrainJob with one patch of this pod template."""
    return with_patch(
        f"{{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {pod}}}}}}}]}}}}"
    )


def runtime(spec: str) -> str:
    """Return a TrainingRuntime with a JobSet spec in flow style."""
    return (
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: a}, "
        f"spec: {{template: {{spec: {spec}}}}}}}"
    )


# text -> (path, rule) of all errors
REFUSED: dict[str, tuple[str, list[tuple[str, Rule]]]] = {
    "nothing": ("", [("", Rule.REQUIRED)]),
    "only text": ("hello", [("", Rule.TYPE)]),
    "no kind and no version": ("{metadata: {name: a}}", [("apiVersion", Rule.REQUIRED), ("kind", Rule.REQUIRED)]),
    "no metadata": ("{apiVersion: v1, kind: ConfigMap}", [("metadata", Rule.REQUIRED)]),
    "no name": ("{apiVersion: v1, kind: ConfigMap, metadata: {}}", [("metadata.name", Rule.REQUIRED)]),
    "bad name": ("{apiVersion: v1, kind: ConfigMap, metadata: {name: A_b}}", [("metadata.name", Rule.INVALID)]),
    "bad namespace": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: a.b}}",
        [("metadata.namespace", Rule.INVALID)],
    ),
    "namespace of a cluster-wide kind": (
        RUNTIME.replace("name: rt", "name: rt\n  namespace: x"),
        [("metadata.namespace", Rule.FORBIDDEN)],
    ),
    "no runtime": (train_job("{}"), [("spec.runtimeRef", Rule.REQUIRED)]),
    "URI": (
        train_job("{runtimeRef: {name: a}, initializer: {dataset: {storageUri: 's3://'}, model: {storageUri: x}}}"),
        [("spec.initializer.dataset.storageUri", Rule.INVALID), ("spec.initializer.model.storageUri", Rule.INVALID)],
    ),
    "deadline": (
        train_job("{runtimeRef: {name: a}, activeDeadlineSeconds: 0, ttlSecondsAfterFinished: -1}"),
        [("spec.activeDeadlineSeconds", Rule.INVALID), ("spec.ttlSecondsAfterFinished", Rule.INVALID)],
    ),
    "nodes and processes": (
        train_job("{runtimeRef: {name: a}, trainer: {numNodes: -1, numProcPerNode: 0}}"),
        [("spec.trainer.numNodes", Rule.INVALID), ("spec.trainer.numProcPerNode", Rule.INVALID)],
    ),
    "processes by name": (
        train_job("{runtimeRef: {name: a}, trainer: {numProcPerNode: auto}}"),
        [("spec.trainer.numProcPerNode", Rule.TYPE)],
    ),
    "two sources of a variable": (
        train_job("{runtimeRef: {name: a}, trainer: {env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: c}}}]}}"),
        [("spec.trainer.env[0]", Rule.INVALID)],
    ),
    "manager": (train_job("{runtimeRef: {name: a}, managedBy: me}"), [("spec.managedBy", Rule.NOT_SUPPORTED)]),
    "metadata in patches": (
        with_patch("{metadata: {name: x, finalizers: [a], labels: {a: b}}}"),
        [(f"{PATCH}.metadata.name", Rule.UNKNOWN), (f"{PATCH}.metadata.finalizers", Rule.UNKNOWN)],
    ),
    "pod fields that patches lack": (
        with_pod_patch("{spec: {hostNetwork: true, terminationGracePeriodSeconds: -1}}"),
        [(f"{POD}.spec.hostNetwork", Rule.UNKNOWN), (f"{POD}.spec.terminationGracePeriodSeconds", Rule.INVALID)],
    ),
    "two sources of a volume": (
        with_pod_patch("{spec: {volumes: [{name: a, emptyDir: {}, secret: {secretName: b}}]}}"),
        [(f"{POD}.spec.volumes[0]", Rule.INVALID)],
    ),
    "one mount path twice": (
        with_pod_patch("{spec: {containers: [{name: a, volumeMounts: [{name: b, mountPath: /x}, {name: c, mountPath: /x}]}]}}"),
        [(f"{POD}.spec.containers[0].volumeMounts[1]", Rule.DUPLICATE)],
    ),
    "JobSet field": (
        runtime("{replicatedJob: [], failurePolicy: {maxRestart: 3}}"),
        [("spec.template.spec.replicatedJob", Rule.UNKNOWN), ("spec.template.spec.failurePolicy.maxRestart", Rule.UNKNOWN)],
    ),
    "no pod template": (
        runtime("{replicatedJobs: [{name: node, template: {spec: {}}}]}"),
        [(f"{TEMPLATE_JOB}.spec.template", Rule.REQUIRED)],
    ),
    "containers that nothing could read": (
        runtime("{replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [x, {name: 1, env: [{}]}]}}}}}]}"),
        [
            (f"{TEMPLATE_JOB}.spec.template.spec.containers[0]", Rule.TYPE),
            (f"{TEMPLATE_JOB}.spec.template.spec.containers[1].name", Rule.TYPE),
            (f"{TEMPLATE_JOB}.spec.template.spec.containers[1].env[0].name", Rule.REQUIRED),
        ],
    ),
    "negative replicas": (
        runtime("{replicatedJobs: [{name: node, replicas: -1, template: {spec: {template: {spec: {containers: []}}}}}]}"),
        [("spec.template.spec.replicatedJobs[0].replicas", Rule.INVALID)],
    ),
    "data that is no base64": (
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: '!', 'b c': ''}}",
        [("data[a]", Rule.INVALID), ("data[b c]", Rule.INVALID)],
    ),
    "one key in data and binaryData": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: x}, binaryData: {a: eA==}}",
        [("binaryData[a]", Rule.DUPLICATE)],
    ),
    "the same object twice": (f"{TRAIN_JOB}---\n{TRAIN_JOB}", [("metadata.name", Rule.DUPLICATE)]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_the_schema_does_not_allow_is_refused_at_its_path(
    case: tuple[str, list[tuple[str, Rule]]],
) -> None:
    text, expected = case

    assert [(error.path, error.rule) for error in read_objects(text, "-").errors] == expected


# Spec 01, section 7.7, W16 to W25.
@pytest.mark.parametrize(
    "uri", ["", "s3://bucket/path", "hf://owner/name", "gs://bucket/model", "a+b.c-1://x"]
)
def test_a_storage_uri_is_accepted(uri: str) -> None:
    assert (
        read_errors(
            train_job(f"{{runtimeRef: {{name: a}}, initializer: {{model: {{storageUri: '{uri}'}}}}}}")
        )
        == []
    )


@pytest.mark.parametrize("uri", ["invalid-uri", "s3://", "://x", "1s://x", "s3:/x", " s3://x", "s3://x\\n"])
def test_text_that_is_no_storage_uri_is_refused(uri: str) -> None:
    text = train_job(f'{{runtimeRef: {{name: a}}, initializer: {{model: {{storageUri: "{uri}"}}}}}}')

    assert [error.path for error in read_objects(text, "-").errors] == ["spec.initializer.model.storageUri"]


@pytest.mark.parametrize("field", ["command", "args"])
@pytest.mark.parametrize(("length", "errors"), [(1048576, 0), (1048577, 1)])
def test_a_word_of_a_command_has_at_most_a_mebibyte(field: str, length: int, errors: int) -> None:
    text = train_job(f"{{runtimeRef: {{name: a}}, trainer: {{{field}: [{'a' * length}]}}}}")

    assert len(read_errors(text)) == errors


@pytest.mark.parametrize(
    ("version", "kind", "message"),
    [
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "a TrainJob makes its own JobSet; put this spec into a TrainingRuntime",
        ),
        ("kubeflow.org/v1", "PyTorchJob", "trainwright migrate"),
        ("batch/v1", "Job", "put its pod template into a TrainingRuntime"),
        ("trainer.kubeflow.org/v1alpha1", "Trainjob", "did you mean TrainJob?"),
        ("v1", "Service", KNOWN),
    ],
)
def test_a_kind_given_by_mistake_is_answered_with_what_to_do(version: str, kind: str, message: str) -> None:
    [error] = read_errors(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")

    assert message in error
    assert KNOWN in error


def test_plain_text_of_a_secret_is_stored_encoded_and_wins() -> None:
    text = "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: eA==, b: eQ==}, stringData: {a: secret}}"
    [read] = read_objects(text, "-").objects

    assert read.value == Secret(metadata=ObjectMeta(name="a"), data={"a": "c2VjcmV0", "b": "eQ=="})


def test_config_maps_and_claims_are_read() -> None:
    text = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: code}
    data:
      train.py: |
        print("hello")
    ---
    apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: data}
    spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
    """
    result = read_objects(textwrap.dedent(text), "-")

    assert [read.value for read in result.objects] == [
        ConfigMap(metadata=ObjectMeta(name="code"), data={"train.py": 'print("hello")\n'}),
        PersistentVolumeClaim(
            metadata=ObjectMeta(name="data"),
            spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
    ]


def test_a_field_of_a_pod_that_looks_misspelt_is_kept_with_a_warning() -> None:
    result = read_objects(RUNTIME.replace("image:", "imagePulPolicy: Always\n                  image:"), "-")

    assert result.errors == ()
    assert [str(warning) for warning in result.warnings] == [
        "22:19: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].imagePulPolicy: "
        "unknown to us and passed on; did you mean imagePullPolicy?"
    ]


def test_fields_of_earlier_versions_are_answered_with_what_took_their_place() -> None:
    text = train_job(
        "{runtimeRef: {name: a}, podTemplateOverrides: [], trainer: {resourcesPerNode: {gpu: 1}}}"
    )

    assert [error.partition(": ")[2] for error in read_errors(text)] == [
        "spec.podTemplateOverrides: unknown field; runtimePatches took its place",
        "spec.trainer.resourcesPerNode.gpu: unknown field; write limits: {nvidia.com/gpu: ...}",
    ]


def test_what_runtimes_once_could_say_is_dropped_with_a_warning() -> None:
    result = read_objects(RUNTIME.replace("torch: {}", "torch: {numProcPerNode: auto}"), "-")

    assert [str(warning) for warning in result.warnings] == [
        "6:35: spec.mlPolicy.torch.numProcPerNode: has no effect; set trainer.numProcPerNode in the TrainJob, or leave it to a node's resources"
    ]
    assert result.objects[0].json["spec"]["mlPolicy"]["torch"] == {}


def test_objects_beside_a_broken_one_are_still_read() -> None:
    result = read_objects(f"a: [\n---\n{TRAIN_JOB}", "-")

    assert [read.kind for read in result.objects] == ["TrainJob"]
    assert len(result.errors) == 1


def test_a_million_errors_are_cut_to_what_people_read() -> None:
    documents = "\n---\n".join("{}" for _ in range(500))
    fields = TRAIN_JOB + "".join(f"  commend{i}: x\n" for i in range(5000))

    for text in (documents, fields):
        errors = read_errors(text)
        assert len(errors) == MAX_ERRORS + 1
        assert errors[-1] == "only the first 100 errors are shown"


@given(st.text() | st.binary())
def test_no_text_raises(text: str | bytes) -> None:
    result = read_objects(text, "-")

    assert result.objects or result.errors


@given(st.integers(0, 2**32), st.sampled_from([TRAIN_JOB, RUNTIME, f"{RUNTIME}---\n{TRAIN_JOB}"]))
def test_no_mutation_of_a_good_text_raises(seed: int, text: str) -> None:
    """Lines are dropped, doubled, swapped and re-indented; characters are replaced by those of YAML's syntax."""
    chance = random.Random(seed)
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        i = chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                del lines[i]
                lines = lines or [""]
            case 1:
                lines.insert(i, lines[chance.randrange(len(lines))])
            case 2:
                lines[i] = " " * chance.randrange(12) + lines[i].strip()
            case 3:
                lines[i] = (
                    lines[i].split(":")[0]
                    + ": "
                    + chance.choice(["", "[]", "{}", "x", "1", "on", "'", "*a", "&a b"])
                )
            case _:
                at = chance.randrange(len(lines[i]) + 1)
                lines[i] = (
                    lines[i][:at] + chance.choice("\t\0:-[]{}&*!|>'\"%@`#,? \u2028é") + lines[i][at + 1 :]
                )

    result = read_objects("\n".join(lines), "-")

    assert result.objects or result.errors


@given(mutated([read_objects(text, "-").objects[0].json for text in (TRAIN_JOB, RUNTIME)]))
def test_no_json_of_the_wrong_shape_raises(body: Any) -> None:
    result = read_object(body)

    assert bool(result.objects) != bool(result.errors)
