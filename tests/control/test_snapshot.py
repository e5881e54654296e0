"""Snapshots of runtimes: what is stored, what is found, what is refused, what is swept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from control.builders import cluster_runtime, runtime, step, train_job
from control.world import JOB, NOW
from trainwright.api.core import ConfigMap
from trainwright.api.encoding import build_json, build_object
from trainwright.api.meta import Json, ObjectMeta, build_owner_reference
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, RuntimeSpec
from trainwright.api.trainjob import RuntimeSnapshotRef, TrainJob, TrainJobStatus
from trainwright.control.snapshot import (
    SNAPSHOT_LABEL,
    FoundSnapshot,
    UnusableSnapshot,
    build_snapshot,
    build_snapshot_ref,
    find_snapshot,
    find_unused_snapshots,
    hash_runtime,
    list_snapshot_names,
    parse_snapshot,
)


def content_of(rt: Runtime) -> Runtime:
    """The runtime as a snapshot keeps it."""
    meta = ObjectMeta(
        name=rt.metadata.name, labels=rt.metadata.labels or None, annotations=rt.metadata.annotations or None
    )
    return msgspec.structs.replace(rt, metadata=meta)


def peer_snapshot(rt: Runtime, job: TrainJob, **metadata: Any) -> Json:
    owner = build_json(build_owner_reference(job.api_version, job.kind, job.metadata))
    body = build_object(rt)
    body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    fields = {"f:spec": {".": {}, "f:env": {'k:{"name":"A: b"}': {}}, 'v:"yes"': {}, "=": {}, "on": {}}}
    body["metadata"]["managedFields"] = [
        {"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{JOB}-runtime-snapshot",
            "namespace": "ns",
            "ownerReferences": [owner],
            **metadata,
        },
        "data": {"runtime": yaml.safe_dump(body)},
    }


def naming(digest: str) -> TrainJob:
    status = TrainJobStatus(runtime_snapshot=RuntimeSnapshotRef(name="rt", hash=digest))
    return msgspec.structs.replace(train_job(), status=status)


def test_a_snapshot_is_an_immutable_config_map_named_by_its_content() -> None:
    snapshot = build_snapshot(runtime(), "ns")
    assert snapshot == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"trainer-runtime-{hash_runtime(runtime())}",
            "namespace": "ns",
            "labels": {SNAPSHOT_LABEL: "true"},
        },
        "data": snapshot["data"],
        "immutable": True,
    }
    assert set(msgspec.json.decode(snapshot["data"]["runtime"])) == {"apiVersion", "kind", "metadata", "spec"}


@pytest.mark.parametrize("rt", [runtime(), cluster_runtime()], ids=["namespaced", "cluster"])
def test_what_is_written_is_read_back(rt: Runtime) -> None:
    job = train_job(kind=rt.kind)
    assert parse_snapshot(build_snapshot(rt, "ns"), job) == content_of(rt)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(extra=st.dictionaries(TEXTS, JSON, max_size=4), labels=st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_any_runtime_comes_back_from_its_snapshot_with_the_same_hash(
    extra: dict[str, Any], labels: dict[str, str]
) -> None:
    template = msgspec.structs.replace(runtime().spec.template, spec=extra)  # type: ignore[union-attr]
    rt = msgspec.structs.replace(
        runtime(),
        metadata=ObjectMeta(name="rt", labels=labels),
        spec=RuntimeSpec(template=template),
    )
    parsed = parse_snapshot(build_snapshot(rt, "ns"), train_job())
    assert parsed == content_of(rt)
    assert hash_runtime(parsed) == hash_runtime(rt)


def test_the_hash_depends_on_content_and_not_on_where_or_how_often_it_was_stored() -> None:
    stored = msgspec.structs.replace(
        runtime(),
        metadata=ObjectMeta(name="rt", namespace="other", uid="u", generation=9, resource_version="7"),
    )
    assert hash_runtime(stored) == hash_runtime(runtime())
    different = [
        runtime(step(image="other")),
        msgspec.structs.replace(runtime(), metadata=ObjectMeta(name="rt2")),
        msgspec.structs.replace(runtime(), metadata=ObjectMeta(name="rt", labels={"a": "b"})),
        msgspec.structs.replace(runtime(), metadata=ObjectMeta(name="rt", annotations={"a": "b"})),
        ClusterTrainingRuntime(metadata=ObjectMeta(name="rt"), spec=runtime().spec),
    ]
    assert len({hash_runtime(rt) for rt in (runtime(), *different)}) == 6


def test_the_peers_form_is_read_with_its_uid_and_generation() -> None:
    job = train_job()
    rt = parse_snapshot(peer_snapshot(runtime(), job), job)
    assert (rt.spec, rt.metadata.uid, rt.metadata.generation) == (runtime().spec, "uid-rt", 3)
    assert build_snapshot_ref(rt, None) == RuntimeSnapshotRef(
        name="rt", uid="uid-rt", generation=3, hash=hash_runtime(runtime())
    )


def _changed(snapshot: Json, **parts: Any) -> Json:
    return {**snapshot, **parts}


OURS = build_snapshot(runtime(), "ns")
REFUSED = {
    "content that does not fit the name": (
        _changed(OURS, data={"runtime": OURS["data"]["runtime"].replace("img:1", "evil:1")}),
        "was changed: its content does not fit its name",
    ),
    "no key": (_changed(OURS, data={}), "has no key 'runtime'"),
    "no ConfigMap at all": ({"metadata": {"name": 7}}, "cannot be read"),
    "the peer's form with another owner": (
        peer_snapshot(
            runtime(), msgspec.structs.replace(train_job(), metadata=ObjectMeta(name=JOB, uid="u-0"))
        ),
        "is not owned by this TrainJob",
    ),
    "the peer's form without an owner": (
        peer_snapshot(runtime(), train_job(), ownerReferences=[]),
        "is not owned by this TrainJob",
    ),
    "bad YAML": (
        _changed(peer_snapshot(runtime(), train_job()), data={"runtime": "{"}),
        "holds no YAML",
    ),
    "a text": (
        _changed(peer_snapshot(runtime(), train_job()), data={"runtime": "hello"}),
        "holds no runtime",
    ),
    "another kind of object": (
        _changed(peer_snapshot(runtime(), train_job()), data={"runtime": "apiVersion: v1\nkind: Pod"}),
        "holds no runtime but v1 Pod",
    ),
    "a runtime with a wrong type in it": (
        _changed(
            peer_snapshot(runtime(), train_job()),
            data={
                "runtime": "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\n"
                "metadata: {name: rt}\nspec: {mlPolicy: {numNodes: many}}"
            },
        ),
        "cannot be read: Expected `int | null`, got `str` - at `$.spec.mlPolicy.numNodes`",
    ),
    "another runtime": (
        peer_snapshot(msgspec.structs.replace(runtime(), metadata=ObjectMeta(name="x")), train_job()),
        "holds TrainingRuntime 'x', the TrainJob names TrainingRuntime 'rt'",
    ),
    "another kind of runtime": (
        peer_snapshot(cluster_runtime(), train_job()),
        "holds ClusterTrainingRuntime 'rt', the TrainJob names TrainingRuntime 'rt'",
    ),
}


RUNTIME = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: rt}\nspec:\n"
LAUGHS = "".join(
    f"  a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(10)) if i else 'x: y'}}}\n"
    for i in range(12)
)
# Whoever may write ConfigMaps may write these for a job of theirs.
EDITED = {
    "metadata that is a text": (
        "metadata: hello".join(RUNTIME.split("metadata: {name: rt}")),
        "cannot be read",
    ),
    "a kind that is a list": (
        RUNTIME.replace("TrainingRuntime", "[TrainingRuntime]"),
        "holds no runtime but",
    ),
    "a thousand billion values in twelve lines": (RUNTIME + LAUGHS, "more than 500,000 values"),
    "a value that holds itself": (RUNTIME + "  template: &a {spec: *a}", "stands inside of what it repeats"),
    "lists in lists in lists": (RUNTIME + "  template: " + "[" * 5000, "holds no YAML"),
    "objects in objects in objects": ('{"a":' * 5000 + "1" + "}" * 5000, "nested deeper than 100 levels"),
    "replicated jobs that are a number": (
        RUNTIME + "  template: {spec: {replicatedJobs: 7}}",
        "spec.template.spec.replicatedJobs: expected a list, found the number 7",
    ),
    "a replicated job without a name": (
        RUNTIME + "  template: {spec: {replicatedJobs: [{template: {}}]}}",
        "spec.template.spec.replicatedJobs[0].name: required",
    ),
}


@pytest.mark.parametrize(("text", "words"), EDITED.values(), ids=EDITED)
def test_a_snapshot_that_somebody_edited_is_refused_in_words_and_in_no_time(text: str, words: str) -> None:
    snapshot = _changed(peer_snapshot(runtime(), train_job()), data={"runtime": text})
    with pytest.raises(UnusableSnapshot) as caught:
        parse_snapshot(snapshot, train_job())
    assert words in str(caught.value)


def test_a_job_that_names_a_snapshot_takes_no_other_content_for_it() -> None:
    """The snapshot may be deleted by whoever may write ConfigMaps, and one of the peer's form put there."""
    peers = peer_snapshot(runtime(step(image="evil:1")), train_job())
    store = {peers["metadata"]["name"]: peers}
    digest = hash_runtime(runtime())
    found = find_snapshot(naming(digest), runtime(), store.get)
    assert found == FoundSnapshot(
        problem=f"ConfigMap '{JOB}-runtime-snapshot' was changed since the job began: "
        f"its hash is not {digest}"
    )
    same = peer_snapshot(runtime(), train_job())
    found = find_snapshot(naming(digest), None, {same["metadata"]["name"]: same}.get)
    assert found.runtime is not None
    assert found.runtime.spec == runtime().spec


@pytest.mark.parametrize(("config_map", "words"), REFUSED.values(), ids=REFUSED)
def test_a_snapshot_that_cannot_be_used_says_why(config_map: Json, words: str) -> None:
    with pytest.raises(UnusableSnapshot) as caught:
        parse_snapshot(config_map, train_job())
    assert words in str(caught.value)


def test_times_in_the_peers_yaml_stay_what_they_are_in_json() -> None:
    text = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: rt}\n"
        "spec: {template: {spec: {replicatedJobs: [], since: 2026-01-01T00:00:00Z}}}"
    )
    parsed = parse_snapshot(
        _changed(peer_snapshot(runtime(), train_job()), data={"runtime": text}), train_job()
    )
    assert parsed.spec.template.spec["since"] == "2026-01-01T00:00:00Z"  # type: ignore[union-attr, index]


def test_names_are_looked_up_in_the_order_named_then_the_peers_then_the_live_runtimes() -> None:
    live = f"trainer-runtime-{hash_runtime(runtime())}"
    peers = f"{JOB}-runtime-snapshot"
    assert list_snapshot_names(train_job(), runtime()) == [peers, live]
    assert list_snapshot_names(naming("abc"), runtime()) == ["trainer-runtime-abc", peers]
    assert list_snapshot_names(train_job(), None) == [peers]


def test_the_first_that_exists_is_the_snapshot() -> None:
    store = {OURS["metadata"]["name"]: OURS}
    assert find_snapshot(train_job(), runtime(), store.get) == FoundSnapshot(runtime=content_of(runtime()))
    assert find_snapshot(train_job(), None, store.get) == FoundSnapshot()
    assert find_snapshot(naming(hash_runtime(runtime())), None, store.get).runtime == content_of(runtime())


def test_an_unusable_snapshot_is_found_as_a_problem_and_not_passed_over() -> None:
    peers = peer_snapshot(runtime(), train_job(), ownerReferences=[])
    store = {peers["metadata"]["name"]: peers, OURS["metadata"]["name"]: OURS}
    found = find_snapshot(train_job(), runtime(), store.get)
    assert found.runtime is None
    assert found.problem == f"ConfigMap '{JOB}-runtime-snapshot' is not owned by this TrainJob"


def test_uid_and_generation_come_from_the_live_runtime_only_if_its_content_is_the_same() -> None:
    kept = content_of(runtime())
    digest = hash_runtime(kept)
    assert build_snapshot_ref(kept, runtime()) == RuntimeSnapshotRef(
        name="rt", uid="uid-rt", generation=3, hash=digest
    )
    assert build_snapshot_ref(kept, runtime(step(image="other"))) == RuntimeSnapshotRef(
        name="rt", hash=digest
    )
    assert build_snapshot_ref(kept, None) == RuntimeSnapshotRef(name="rt", hash=digest)


def stored(rt: Runtime, age: timedelta = timedelta(hours=1), namespace: str = "ns") -> ConfigMap:
    config_map = msgspec.convert(build_snapshot(rt, namespace), ConfigMap)
    meta = msgspec.structs.replace(config_map.metadata, creation_timestamp=NOW - age)
    return msgspec.structs.replace(config_map, metadata=meta)


OTHER = runtime(step(image="other"))


def test_snapshots_that_no_job_names_are_swept() -> None:
    used, unused = stored(runtime()), stored(OTHER)
    assert find_unused_snapshots([used, unused], [naming(hash_runtime(runtime()))], NOW) == [unused]


def test_a_snapshot_that_a_job_of_another_namespace_names_is_swept() -> None:
    elsewhere = stored(runtime(), namespace="other")
    assert find_unused_snapshots([elsewhere], [naming(hash_runtime(runtime()))], NOW) == [elsewhere]


def test_a_young_snapshot_is_kept() -> None:
    assert find_unused_snapshots([stored(OTHER, timedelta(minutes=9))], [], NOW) == []


def test_a_snapshot_of_a_runtime_that_a_job_without_a_snapshot_uses_is_kept() -> None:
    assert find_unused_snapshots([stored(OTHER)], [train_job()], NOW) == []
    assert find_unused_snapshots([stored(OTHER)], [train_job(runtime="another")], NOW) == [stored(OTHER)]


def test_config_maps_of_others_are_never_swept() -> None:
    alike = ConfigMap(
        metadata=ObjectMeta(name="trainer-runtime-of-mine", creation_timestamp=NOW - timedelta(days=9))
    )
    labelled = ConfigMap(
        metadata=ObjectMeta(
            name="other", labels={SNAPSHOT_LABEL: "true"}, creation_timestamp=NOW - timedelta(days=9)
        )
    )
    assert find_unused_snapshots([alike, labelled], [], NOW) == []


DAMAGED = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "objects in objects in objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "a kind that is a list": '{"kind": ["a"], "metadata": {"name": "rt"}}',
    "a name that is an object": '{"kind": "TrainingRuntime", "metadata": {"name": {}}}',
    "metadata that is a text": '{"kind": "TrainingRuntime", "metadata": "rt"}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_snapshot_is_swept_and_keeps_no_other_from_it(text: str) -> None:
    damaged = msgspec.structs.replace(stored(OTHER), data={"runtime": text})
    assert find_unused_snapshots([damaged, stored(OTHER)], [train_job(runtime="x")], NOW) == [
        damaged,
        stored(OTHER),
    ]
