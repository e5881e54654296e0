"""Objects of several files, and every mistake in them."""

import pytest

from trainwright.cli.manifests import read_manifests

JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s}
spec: {runtimeRef: {name: plain}}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


def test_objects_come_in_the_order_of_the_files(write):
    files = [write("b.yaml", JOB % "b" + "---\n" + JOB % "c"), write("a.yaml", JOB % "a")]
    assert [item.value.metadata.name for item in read_manifests(files).objects] == ["b", "c", "a"]


def test_a_file_that_is_named_twice_is_read_once(write):
    file = write("a.yaml", JOB % "a")
    assert len(read_manifests([file, file]).objects) == 1


def test_every_mistake_of_every_file_is_told_at_once_where_it_stands(write):
    files = [
        write("one.yaml", JOB % "a" + "  numNodes: 2\n---\n" + JOB % "Bad_Name"),
        write("two.json", '{"apiVersion": "v1", "kind": "Pod"}'),
        write("good.yaml", JOB % "good"),
    ]
    read = read_manifests(files)
    places = [mistake.line.split(": ")[0] for mistake in read.mistakes]
    assert places == ["one.yaml:5:3", "two.json:1:22"]
    assert [item.value.metadata.name for item in read.objects] == ["Bad_Name", "good"]


def test_one_object_in_two_files_is_a_mistake(write):
    read = read_manifests([write("a.yaml", JOB % "a"), write("b.yaml", JOB % "a")])
    (mistake,) = read.mistakes
    assert mistake.line == "b.yaml: TrainJob 'a' is already in a.yaml; keep one of them"
