"""What the store does to any object at its door."""

import pytest

from cluster.samples import config_map, train_job
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.objects import encode_object, normalise_key, parse_incoming
from trainwright.errors import InvalidObject

INVALID = {
    "no name": ({**train_job("x"), "metadata": {"namespace": "default"}}, "metadata.name"),
    "upper case": (train_job("Demo"), "metadata.name"),
    "slash in the name": (train_job("a/b"), "metadata.name"),
    "namespace with an underscore": (train_job("demo", "my_team"), "metadata.namespace"),
    "label that is a number": (train_job("demo", labels={"a": 1}), "metadata.labels"),
    "no kind": ({**train_job("demo"), "kind": ""}, "kind"),
    "no apiVersion": ({k: v for k, v in train_job("demo").items() if k != "apiVersion"}, "apiVersion"),
    "metadata that is a text": ({**train_job("demo"), "metadata": "demo"}, "metadata"),
}


@pytest.mark.parametrize(("obj", "path"), INVALID.values(), ids=INVALID)
def test_what_is_no_object_is_refused_with_the_path(obj, path):
    with pytest.raises(InvalidObject) as refused:
        parse_incoming(obj)
    assert [error.path.partition("[")[0] for error in refused.value.errors] == [path]


NO_JSON = {"bytes": "\udcff", "an object": object(), "a list in itself": (loop := [])}
loop.append(loop)


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_refused(value):
    with pytest.raises(InvalidObject, match=r"ConfigMap 'bytes': cannot be written as JSON"):
        encode_object(config_map("bytes", data={"name": value}))


def test_the_errors_of_an_object_come_together():
    with pytest.raises(InvalidObject) as refused:
        parse_incoming({"metadata": None})
    assert [error.path for error in refused.value.errors] == ["apiVersion", "kind", "metadata"]


def test_what_is_not_the_senders_to_say_is_left_out():
    sent = train_job("demo", uid="u", resourceVersion="3", managedFields=[], labels={"a": "b"})
    key, body = parse_incoming({**sent, "status": {"phase": "Complete"}})
    assert key == ObjectKey("TrainJob", "default", "demo")
    assert body == train_job("demo", labels={"a": "b"})


def test_string_data_must_be_a_map_of_texts():
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": 1}}
    with pytest.raises(InvalidObject, match="stringData: must be a map of texts"):
        parse_incoming(secret)


def test_a_key_has_the_namespace_that_its_kind_has():
    assert normalise_key(ObjectKey("ClusterTrainingRuntime", "x", "a")) == ObjectKey(
        "ClusterTrainingRuntime", "", "a"
    )
    assert normalise_key(ObjectKey("TrainJob", "", "a")) == ObjectKey("TrainJob", "default", "a")
    assert normalise_key(ObjectKey("TrainJob", "x", "a")) == ObjectKey("TrainJob", "x", "a")
