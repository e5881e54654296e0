"""What every adapter of the port has to do, whatever holds the objects.

The fixture `cluster` gives a `Cluster`; nothing here knows which, nor relies on its words. An adapter runs
the suite by importing it beside a fixture of that name, `from cluster.test_port import *`; tests/kube does so
against a kube-apiserver (with CRDs that know no fields), so that what the embedded store does is what a
server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from cluster.samples import config_map, event_about, key_of, owned_by, pod, train_job
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.port import Change, ChangeType, Cluster
from trainwright.errors import AlreadyExists, Conflict, InvalidObject, NotFound


def without_metadata(obj: Json) -> Json:
    return {name: value for name, value in obj.items() if name != "metadata"}


def version(obj: Json) -> str:
    return obj["metadata"]["resourceVersion"]


async def next_change(changes) -> Change:
    async with asyncio.timeout(30):
        return await anext(changes)


# Create and read


async def test_a_created_object_comes_back_with_what_the_server_adds(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo", labels={"team": "a"}))
    metadata = created["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["labels"] == {"team": "a"}
    assert without_metadata(created) == without_metadata(train_job("demo"))
    assert await cluster.get(key_of(created)) == created


async def test_creating_a_second_object_of_the_same_name_is_refused(cluster: Cluster) -> None:
    await cluster.create(train_job("demo"))
    with pytest.raises(AlreadyExists):
        await cluster.create(train_job("demo"))


async def test_the_same_name_may_stand_in_another_namespace_and_kind(cluster: Cluster) -> None:
    await cluster.create(train_job("demo"))
    await cluster.create(train_job("demo", "team-a"))
    await cluster.create(config_map("demo"))
    assert len((await cluster.list("TrainJob")).items) == 2


async def test_a_generated_name_starts_with_the_given_one_and_is_new_each_time(cluster: Cluster) -> None:
    nameless = train_job("x")
    nameless["metadata"] = {"namespace": "default", "generateName": "demo-"}
    names = {(await cluster.create(nameless))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"demo-[a-z0-9]{5}", name) for name in names)


async def test_a_long_generated_name_is_cut_to_a_label(cluster: Cluster) -> None:
    nameless = train_job("x")
    nameless["metadata"] = {"namespace": "default", "generateName": "d" * 80}
    assert len((await cluster.create(nameless))["metadata"]["name"]) == 63


async def test_a_status_cannot_be_created(cluster: Cluster) -> None:
    created = await cluster.create({**train_job("demo"), "status": {"phase": "Complete"}})
    assert "status" not in created


async def test_a_kind_without_namespace_ignores_one(cluster: Cluster) -> None:
    runtime = {**train_job("torch"), "kind": "ClusterTrainingRuntime", "spec": {}}
    created = await cluster.create(runtime)
    assert "namespace" not in created["metadata"]
    assert await cluster.get(ObjectKey("ClusterTrainingRuntime", "", "torch")) == created


@pytest.mark.parametrize("name", ["", "Demo", "-demo", "a/b"])
async def test_a_name_that_is_none_is_refused_with_the_path(cluster: Cluster, name: str) -> None:
    with pytest.raises(InvalidObject) as refused:
        await cluster.create(config_map(name))
    assert [error.path for error in refused.value.errors] == ["metadata.name"]


async def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    missing = ObjectKey("TrainJob", "default", "demo")
    for call in (
        cluster.get(missing),
        cluster.patch(missing, {"spec": {}}),
        cluster.patch_status(missing, {"status": {}}),
        cluster.delete(missing),
    ):
        with pytest.raises(NotFound):
            await call


async def test_string_data_of_a_secret_is_stored_as_data(cluster: Cluster) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "default"},
        "data": {"a": "QQ=="},
        "stringData": {"b": "B"},
    }
    created = await cluster.create(secret)
    assert created["data"] == {"a": "QQ==", "b": "Qg=="}
    assert "stringData" not in created


# List


async def test_a_list_has_the_kind_and_namespace_in_order_of_names(cluster: Cluster) -> None:
    for name in ("b", "a", "c"):
        await cluster.create(train_job(name))
    await cluster.create(train_job("z", "another"))
    await cluster.create(pod("a"))
    names = [obj["metadata"]["name"] for obj in (await cluster.list("TrainJob", "default")).items]
    everywhere = [obj["metadata"]["name"] for obj in (await cluster.list("TrainJob")).items]
    assert names == ["a", "b", "c"]
    assert everywhere == ["z", "a", "b", "c"]


async def test_a_list_by_labels_has_the_objects_with_all_of_them(cluster: Cluster) -> None:
    await cluster.create(pod("both", labels={"job": "x", "rank": "0"}))
    await cluster.create(pod("one", labels={"job": "x", "rank": "1"}))
    await cluster.create(pod("none"))
    found = await cluster.list("Pod", "default", {"job": "x", "rank": "0"})
    assert [obj["metadata"]["name"] for obj in found.items] == ["both"]
    assert len((await cluster.list("Pod", None, {"job": "x"})).items) == 2


async def test_a_list_by_labels_follows_the_labels_as_they_change(cluster: Cluster) -> None:
    created = await cluster.create(pod("a", labels={"job": "x"}))
    await cluster.patch(key_of(created), {"metadata": {"labels": {"job": "y"}}})
    assert (await cluster.list("Pod", None, {"job": "x"})).items == []
    assert len((await cluster.list("Pod", None, {"job": "y"})).items) == 1
    await cluster.delete(key_of(created))
    assert (await cluster.list("Pod", None, {"job": "y"})).items == []


# Patch


async def test_a_patch_merges_and_null_removes(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo", labels={"a": "1", "b": "2"}))
    patched = await cluster.patch(
        key_of(created), {"metadata": {"labels": {"a": None}}, "spec": {"suspend": True}}
    )
    assert patched["metadata"]["labels"] == {"b": "2"}
    assert patched["spec"] == {**created["spec"], "suspend": True}
    assert await cluster.get(key_of(created)) == patched


async def test_the_generation_counts_changes_of_the_spec_alone(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    key = key_of(created)
    labelled = await cluster.patch(key, {"metadata": {"labels": {"a": "1"}}})
    with_status = await cluster.patch_status(key, {"status": {"phase": "Running"}})
    suspended = await cluster.patch(key, {"spec": {"suspend": True}})
    assert [obj["metadata"]["generation"] for obj in (created, labelled, with_status, suspended)] == [
        1,
        1,
        1,
        2,
    ]


async def test_every_change_raises_the_resource_version(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    patched = await cluster.patch(key_of(created), {"spec": {"suspend": True}})
    with_status = await cluster.patch_status(key_of(created), {"status": {"phase": "Suspended"}})
    assert int(version(created)) < int(version(patched)) < int(version(with_status))


async def test_a_write_that_changes_nothing_is_no_write(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    key = key_of(created)
    before = await cluster.patch_status(key, {"status": {"phase": "Running"}})
    assert await cluster.patch(key, {"spec": {"trainer": {"numNodes": 2}}}) == before
    assert await cluster.patch_status(key, {"status": {"phase": "Running"}}) == before


async def test_a_patch_does_not_touch_the_status(cluster: Cluster) -> None:
    key = key_of(await cluster.create(train_job("demo")))
    await cluster.patch_status(key, {"status": {"phase": "Running"}})
    patched = await cluster.patch(key, {"spec": {"suspend": True}, "status": {"phase": "Failed"}})
    assert patched["status"] == {"phase": "Running"}


async def test_a_status_patch_touches_nothing_but_the_status(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    patched = await cluster.patch_status(
        key_of(created),
        {"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": True}, "status": {"phase": "Running"}},
    )
    assert patched["spec"] == created["spec"]
    assert "labels" not in patched["metadata"]
    assert patched["status"] == {"phase": "Running"}


async def test_a_status_patch_merges_and_null_removes(cluster: Cluster) -> None:
    key = key_of(await cluster.create(train_job("demo")))
    await cluster.patch_status(key, {"status": {"phase": "Running", "restarts": 1}})
    patched = await cluster.patch_status(
        key, {"status": {"phase": None, "startTime": "2026-01-01T00:00:00Z"}}
    )
    assert patched["status"] == {"restarts": 1, "startTime": "2026-01-01T00:00:00Z"}


async def test_a_stale_resource_version_is_a_conflict(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    key = key_of(created)
    changed = await cluster.patch(key, {"spec": {"suspend": True}})
    stale = {"metadata": {"resourceVersion": version(created)}}
    for write in (
        cluster.patch(key, {**stale, "spec": {"suspend": False}}),
        cluster.patch_status(key, {**stale, "status": {"phase": "Running"}}),
    ):
        with pytest.raises(Conflict):
            await write
    assert await cluster.get(key) == changed
    fresh = {"metadata": {"resourceVersion": version(changed)}, "spec": {"suspend": False}}
    assert (await cluster.patch(key, fresh))["spec"]["suspend"] is False


async def test_the_uid_of_an_earlier_object_is_refused(cluster: Cluster) -> None:
    earlier = await cluster.create(train_job("demo"))
    key, uid = key_of(earlier), earlier["metadata"]["uid"]
    await cluster.delete(key)
    later = await cluster.create(train_job("demo"))
    # To an API server a patch may not change a uid (Invalid), and a deletion is in conflict.
    with pytest.raises((Conflict, InvalidObject)):
        await cluster.patch(key, {"metadata": {"uid": uid}, "spec": {"suspend": True}})
    with pytest.raises(Conflict):
        await cluster.delete(key, uid)
    assert await cluster.get(key) == later


async def test_the_identity_of_an_object_cannot_be_patched(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    for change in ({"kind": "Pod"}, {"metadata": {"name": "other"}}, {"metadata": {"namespace": "other"}}):
        with pytest.raises(InvalidObject):
            await cluster.patch(key_of(created), change)
    assert await cluster.get(key_of(created)) == created


async def test_an_immutable_config_map_keeps_its_data(cluster: Cluster) -> None:
    created = await cluster.create({**config_map("a", data={"x": "1"}), "immutable": True})
    for change in ({"data": {"x": "2"}}, {"immutable": False}, {"data": None}):
        with pytest.raises(InvalidObject):
            await cluster.patch(key_of(created), change)
    labelled = await cluster.patch(key_of(created), {"metadata": {"labels": {"a": "b"}}})
    assert labelled["data"] == {"x": "1"}


# Apply


async def test_an_apply_creates_what_is_not_there(cluster: Cluster) -> None:
    applied = await cluster.apply(train_job("demo"), "cli")
    assert without_metadata(applied) == without_metadata(train_job("demo"))
    assert applied["metadata"]["generation"] == 1


async def test_applying_the_same_again_writes_nothing(cluster: Cluster) -> None:
    applied = await cluster.apply(train_job("demo", labels={"a": "b"}), "cli")
    assert await cluster.apply(train_job("demo", labels={"a": "b"}), "cli") == applied


async def test_a_field_that_is_no_longer_applied_goes_away(cluster: Cluster) -> None:
    full = train_job("demo", labels={"a": "1", "b": "2"})
    full["spec"]["suspend"] = True
    await cluster.apply(full, "cli")
    applied = await cluster.apply(train_job("demo", labels={"b": "2"}), "cli")
    assert applied["metadata"]["labels"] == {"b": "2"}
    assert applied["spec"] == train_job("demo")["spec"]


async def test_a_field_of_another_manager_stays(cluster: Cluster) -> None:
    await cluster.apply(train_job("demo", labels={"ours": "1"}), "cli")
    minimal = train_job("demo", labels={"theirs": "2"})
    del minimal["spec"]
    await cluster.apply(minimal, "queue")
    applied = await cluster.apply(train_job("demo"), "cli")
    assert applied["metadata"]["labels"] == {"theirs": "2"}


async def test_a_field_that_two_managers_apply_stays_until_both_leave_it(cluster: Cluster) -> None:
    both = train_job("demo", labels={"shared": "1"})
    await cluster.apply(both, "cli")
    await cluster.apply(both, "queue")
    assert (await cluster.apply(train_job("demo"), "cli"))["metadata"]["labels"] == {"shared": "1"}
    assert "labels" not in (await cluster.apply(train_job("demo"), "queue"))["metadata"]


async def test_changing_a_field_of_another_manager_is_a_conflict_that_names_both(cluster: Cluster) -> None:
    before = await cluster.apply(train_job("demo"), "cli")
    other = train_job("demo")
    other["spec"]["trainer"]["numNodes"] = 3
    with pytest.raises(Conflict) as refused:
        await cluster.apply(other, "queue", force=False)
    assert "cli" in str(refused.value)
    assert "spec.trainer.numNodes" in str(refused.value)
    assert await cluster.get(key_of(before)) == before


async def test_a_forced_apply_takes_the_field_over(cluster: Cluster) -> None:
    await cluster.apply(train_job("demo"), "cli")
    other = train_job("demo")
    other["spec"]["trainer"]["numNodes"] = 3
    await cluster.apply(other, "queue", force=True)
    # `cli` has lost the field: leaving it out does not remove it, and asking for its own value is a conflict.
    with pytest.raises(Conflict, match=r"spec\.trainer\.numNodes"):
        await cluster.apply(train_job("demo"), "cli", force=False)
    without = train_job("demo")
    del without["spec"]["trainer"]
    assert (await cluster.apply(without, "cli"))["spec"]["trainer"] == {"numNodes": 3}


async def test_equal_values_of_two_managers_are_no_conflict(cluster: Cluster) -> None:
    before = await cluster.apply(train_job("demo"), "cli")
    assert without_metadata(await cluster.apply(train_job("demo"), "queue", force=False)) == without_metadata(
        before
    )


async def test_a_patched_field_is_not_lost_to_an_apply_without_force(cluster: Cluster) -> None:
    created = await cluster.apply({**train_job("demo")}, "cli")
    await cluster.patch(key_of(created), {"spec": {"suspend": True}})
    resumed = train_job("demo")
    resumed["spec"]["suspend"] = False
    with pytest.raises(Conflict, match=r"spec\.suspend"):
        await cluster.apply(resumed, "cli", force=False)
    assert (await cluster.apply(train_job("demo"), "cli"))["spec"]["suspend"] is True
    assert (await cluster.apply(resumed, "cli", force=True))["spec"]["suspend"] is False


async def test_what_was_created_is_not_removed_by_an_apply(cluster: Cluster) -> None:
    await cluster.create(train_job("demo", labels={"a": "b"}))
    await cluster.apply(train_job("demo", labels={"a": "b"}), "cli", force=False)
    assert (await cluster.apply(train_job("demo"), "cli"))["metadata"]["labels"] == {"a": "b"}


async def test_elements_of_a_keyed_list_are_owned_one_by_one(cluster: Cluster) -> None:
    """Owner references are keyed by uid, in every kind."""
    owners = [await cluster.create(config_map(name)) for name in ("a", "b", "c")]
    first, second, third = (owned_by(owner)[0] for owner in owners)
    await cluster.apply(config_map("child", ownerReferences=[first, second]), "one")
    await cluster.apply(config_map("child", ownerReferences=[third]), "two")
    applied = await cluster.apply(config_map("child", ownerReferences=[first]), "one")
    names = sorted(reference["name"] for reference in applied["metadata"]["ownerReferences"])
    assert names == ["a", "c"]


async def test_a_list_without_keys_is_replaced_whole(cluster: Cluster) -> None:
    job = train_job("demo")
    job["spec"]["trainer"]["args"] = ["a", "b"]
    await cluster.apply(job, "cli")
    job["spec"]["trainer"]["args"] = ["b"]
    assert (await cluster.apply(job, "cli"))["spec"]["trainer"]["args"] == ["b"]


async def test_an_apply_does_not_touch_the_status(cluster: Cluster) -> None:
    key = key_of(await cluster.apply(train_job("demo"), "cli"))
    await cluster.patch_status(key, {"status": {"phase": "Running"}})
    applied = await cluster.apply({**train_job("demo"), "status": {"phase": "Failed"}}, "cli")
    assert applied["status"] == {"phase": "Running"}


async def test_an_apply_may_be_bound_to_a_resource_version(cluster: Cluster) -> None:
    created = await cluster.apply(train_job("demo"), "cli")
    await cluster.patch(key_of(created), {"spec": {"suspend": True}})
    with pytest.raises(Conflict):
        await cluster.apply(train_job("demo", resourceVersion=version(created)), "cli")


# Delete


async def test_a_deleted_object_is_gone_and_its_name_free(cluster: Cluster) -> None:
    first = await cluster.create(train_job("demo"))
    await cluster.delete(key_of(first), first["metadata"]["uid"])
    with pytest.raises(NotFound):
        await cluster.get(key_of(first))
    second = await cluster.create(train_job("demo"))
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def eventually_gone(cluster: Cluster, key: ObjectKey) -> None:
    """A garbage collector may take its time; ours takes none."""
    async with asyncio.timeout(30):
        while True:
            try:
                await cluster.get(key)
            except NotFound:
                return
            await asyncio.sleep(0.1)


async def test_deleting_an_owner_deletes_all_below_it(cluster: Cluster) -> None:
    job = await cluster.create(train_job("demo"))
    child = await cluster.create(config_map("child", ownerReferences=owned_by(job)))
    grandchild = await cluster.create(pod("grandchild", ownerReferences=owned_by(child)))
    bystander = await cluster.create(pod("bystander"))
    await cluster.delete(key_of(job))
    await eventually_gone(cluster, key_of(child))
    await eventually_gone(cluster, key_of(grandchild))
    assert await cluster.get(key_of(bystander)) == bystander


async def test_an_object_goes_with_its_last_owner(cluster: Cluster) -> None:
    first, second = await cluster.create(train_job("a")), await cluster.create(train_job("b"))
    references = owned_by(first, second)
    shared = await cluster.create(config_map("shared", data={"a": "b"}, ownerReferences=references))
    await cluster.delete(key_of(first))
    assert (await cluster.get(key_of(shared)))["data"] == {"a": "b"}
    await cluster.delete(key_of(second))
    await eventually_gone(cluster, key_of(shared))


async def test_an_owner_made_anew_does_not_own_the_old_children(cluster: Cluster) -> None:
    job = await cluster.create(train_job("demo"))
    child = await cluster.create(config_map("child", ownerReferences=owned_by(job)))
    await cluster.delete(key_of(job))
    await cluster.create(train_job("demo"))
    await eventually_gone(cluster, key_of(child))


async def test_a_child_of_an_owner_that_is_gone_does_not_stay(cluster: Cluster) -> None:
    job = await cluster.create(train_job("demo"))
    await cluster.delete(key_of(job))
    child = config_map("child", ownerReferences=owned_by(job))
    with contextlib.suppress(Conflict):
        await cluster.apply(child, "trainer")
    await eventually_gone(cluster, key_of(child))


# Events


async def test_equal_events_are_counted_in_one_object(cluster: Cluster) -> None:
    job = await cluster.create(train_job("demo"))
    for _ in range(3):
        await cluster.record_event(event_about(job))
    await cluster.record_event(event_about(job, message="something else"))
    events = await cluster.list_events("default", [job["metadata"]["uid"]])
    assert sorted((event["message"], event["count"]) for event in events) == [
        ("no", 3),
        ("something else", 1),
    ]


async def test_an_event_has_what_clients_show(cluster: Cluster) -> None:
    job = await cluster.create(train_job("demo"))
    await cluster.record_event(event_about(job))
    (event,) = (await cluster.list("Event", "default")).items
    assert event["involvedObject"]["uid"] == job["metadata"]["uid"]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Failed", "no")
    assert event["firstTimestamp"] <= event["lastTimestamp"]
    assert event["metadata"]["name"].startswith("demo.")


async def test_events_are_found_by_what_they_are_about(cluster: Cluster) -> None:
    one, two = await cluster.create(pod("one")), await cluster.create(pod("two"))
    await cluster.record_event(event_about(one))
    await cluster.record_event(event_about(two))
    (event,) = await cluster.list_events("default", [two["metadata"]["uid"]])
    assert event["involvedObject"]["name"] == "two"
    assert list(await cluster.list_events("default", [])) == []
    assert list(await cluster.list_events("another", [two["metadata"]["uid"]])) == []


# Watch


async def test_a_watch_tells_what_happens_after_a_list(cluster: Cluster) -> None:
    before = await cluster.create(train_job("before"))
    listed = await cluster.list("TrainJob")
    changes = cluster.watch(["TrainJob"], None, listed.resource_version)
    created = await cluster.create(train_job("after"))
    assert await next_change(changes) == Change(ChangeType.ADDED, created)
    patched = await cluster.patch(key_of(before), {"spec": {"suspend": True}})
    assert await next_change(changes) == Change(ChangeType.MODIFIED, patched)
    await cluster.delete(key_of(before))
    deleted = await next_change(changes)
    assert deleted.type == ChangeType.DELETED
    assert deleted.object["spec"] == patched["spec"]
    assert int(version(deleted.object)) > int(version(patched))
    await changes.aclose()


async def test_a_watch_waits_for_what_has_not_happened_yet(cluster: Cluster) -> None:
    listed = await cluster.list("TrainJob")
    changes = cluster.watch(["TrainJob"], None, listed.resource_version)
    waiting = asyncio.create_task(next_change(changes))
    await asyncio.sleep(0)
    assert not waiting.done()
    created = await cluster.create(train_job("demo"))
    assert (await waiting).object == created
    await changes.aclose()


async def test_a_watch_tells_of_its_kinds_and_namespace_alone(cluster: Cluster) -> None:
    listed = await cluster.list("TrainJob")
    changes = cluster.watch(["TrainJob", "Pod"], "team-a", listed.resource_version)
    await cluster.create(train_job("elsewhere"))
    await cluster.create(config_map("other-kind", "team-a"))
    await cluster.create(pod("p", "team-a"))
    change = await next_change(changes)
    assert (change.object["kind"], change.object["metadata"]["name"]) == ("Pod", "p")
    await changes.aclose()


async def test_a_watch_ends_at_once_when_it_is_cancelled(cluster: Cluster) -> None:
    listed = await cluster.list("TrainJob")
    changes = cluster.watch(["TrainJob"], None, listed.resource_version)
    waiting = asyncio.create_task(anext(changes))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await waiting


async def test_a_write_that_changes_nothing_wakes_no_watch(cluster: Cluster) -> None:
    created = await cluster.create(train_job("demo"))
    changes = cluster.watch(["TrainJob"], None, version(created))
    await cluster.patch(key_of(created), {"spec": {"trainer": {"numNodes": 2}}})
    marker = await cluster.create(train_job("marker"))
    assert (await next_change(changes)).object == marker
    await changes.aclose()
