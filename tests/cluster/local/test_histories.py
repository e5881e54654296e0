"""Any history of verbs gives what a simple model gives, and any watch of it ends as a list does."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.samples import owned_by
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.merge_patch import merge_patch
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.port import ChangeType
from trainwright.errors import AlreadyExists, Conflict, NotFound

KINDS = ("TrainJob", "Pod")
keys = st.builds(ObjectKey, st.sampled_from(KINDS), st.sampled_from(["a", "b"]), st.sampled_from("xyz"))
labels = st.dictionaries(st.sampled_from("lm"), st.sampled_from("12"), max_size=2)
scalars = st.integers(0, 1) | st.booleans() | st.none()
specs = st.dictionaries(
    st.sampled_from("pqr"), scalars | st.dictionaries(st.sampled_from("pq"), scalars, max_size=2), max_size=3
)
statuses = st.dictionaries(st.sampled_from("pqr"), scalars, max_size=2)
managers = st.sampled_from(["one", "two"])


class Watcher:
    """A store that is filled from a list and from watches, each resumed where the last one was left."""

    def __init__(self, items, resource_version):
        self.objects = {identity(obj): obj for obj in items}
        self.version = resource_version

    def take(self, change):
        version = int(change.object["metadata"]["resourceVersion"])
        assert version > int(self.version), "changes come in order"
        self.version = str(version)
        # What is known decides nothing here: whoever resumes may be told of objects that he never saw.
        if change.type == ChangeType.DELETED:
            self.objects.pop(identity(change.object), None)
        else:
            self.objects[identity(change.object)] = change.object


def identity(obj):
    return obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]


def without_null(value):
    if isinstance(value, dict):
        return {name: without_null(below) for name, below in value.items() if below is not None}
    return value


class Histories(RuleBasedStateMachine):
    """`model` maps a key to [spec, labels, status, key of the owner or None]."""

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        # Two connections: what one process writes, another reads.
        path = Path(self.folder.name) / "store.db"
        self.writer, self.reader = LocalCluster(path), LocalCluster(path)
        self.model = {}
        self.watchers = []

    def teardown(self):
        self.runner.run(asyncio.sleep(0))
        self.writer.close()
        self.reader.close()
        self.runner.close()
        self.folder.cleanup()

    def run(self, verb):
        return self.runner.run(verb)

    @initialize()
    def start_watching(self):
        self.watch_from_now()

    def build(self, key, spec, labels):
        metadata = {"namespace": key.namespace, "name": key.name, "labels": labels}
        return {"apiVersion": "v1", "kind": key.kind, "metadata": metadata, "spec": spec}

    @rule(key=keys, spec=specs, labels=labels)
    def create(self, key, spec, labels):
        obj = self.build(key, spec, labels)
        before = copy.deepcopy(obj)
        try:
            self.run(self.writer.create(obj))
        except AlreadyExists:
            assert key in self.model
        else:
            assert key not in self.model
            self.model[key] = [spec, labels, {}, None]
        assert obj == before

    @precondition(lambda self: self.model)
    @rule(key=keys, data=st.data())
    def create_owned(self, key, data):
        owner = data.draw(st.sampled_from(sorted(self.model)))
        if key in self.model:
            return
        obj = self.build(key, {}, {})
        obj["metadata"]["ownerReferences"] = owned_by(self.run(self.writer.get(owner)))
        self.run(self.writer.create(obj))
        self.model[key] = [{}, {}, {}, owner]

    @rule(key=keys, spec=specs, labels=labels)
    def patch(self, key, spec, labels):
        merge = {"spec": spec, "metadata": {"labels": labels}, "status": {"never": 1}}
        try:
            self.run(self.writer.patch(key, merge))
        except NotFound:
            assert key not in self.model
        else:
            entry = self.model[key]
            entry[0], entry[1] = merge_patch(entry[0], spec), merge_patch(entry[1], labels)

    @rule(key=keys, status=statuses)
    def patch_status(self, key, status):
        try:
            self.run(self.writer.patch_status(key, {"status": status, "spec": {"never": 1}}))
        except NotFound:
            assert key not in self.model
        else:
            self.model[key][2] = merge_patch(self.model[key][2], status)

    @rule(key=keys, spec=specs, manager=managers)
    def apply_new(self, key, spec, manager):
        """What apply does to objects that others wrote is in test_field_managers; here a single owner."""
        if key in self.model:
            return
        self.run(self.writer.apply(self.build(key, spec, {}), manager))
        self.model[key] = [without_null(spec), {}, {}, None]

    @rule(key=keys, manager=managers)
    def apply_twice(self, key, manager):
        if key not in self.model:
            return
        obj = self.build(key, self.model[key][0], self.model[key][1])
        first = self.run(self.writer.apply(without_null(obj), manager))
        assert self.run(self.writer.apply(without_null(obj), manager)) == first

    @rule(key=keys, wrong=st.booleans())
    def delete(self, key, wrong):
        uid = "another" if wrong else None
        try:
            self.run(self.writer.delete(key, uid))
        except NotFound:
            assert key not in self.model
        except Conflict:
            assert wrong
            assert key in self.model
        else:
            gone = {key}
            while more := {k for k, entry in self.model.items() if entry[3] in gone} - gone:
                gone |= more
            self.model = {k: entry for k, entry in self.model.items() if k not in gone}

    @rule()
    def watch_from_now(self):
        listed = [self.run(self.reader.list(kind)) for kind in KINDS]
        assert len({part.resource_version for part in listed}) == 1
        items = [obj for part in listed for obj in part.items]
        self.watchers.append(Watcher(items, listed[0].resource_version))

    @rule()
    def read_the_watches(self):
        """Each watch, read to its end, has made of its first list what a list gives now."""
        now = {identity(obj): obj for kind in KINDS for obj in self.run(self.reader.list(kind)).items}
        for watcher in self.watchers:
            self.run(self.read(watcher))
            assert watcher.objects == now

    async def read(self, watcher):
        changes = self.reader.watch(KINDS, None, watcher.version)
        while True:
            step = asyncio.ensure_future(anext(changes))
            # The store answers inline: after one turn of the loop a change is there, or there is none.
            await asyncio.sleep(0)
            if not step.done():
                step.cancel()
                await asyncio.wait([step])
                return
            watcher.take(step.result())

    @invariant()
    def the_store_is_what_the_model_says(self):
        stored = {
            ObjectKey(*identity(obj)): [
                obj["spec"],
                obj["metadata"].get("labels", {}),
                obj.get("status", {}),
            ]
            for kind in KINDS
            for obj in self.run(self.reader.list(kind)).items
        }
        assert stored == {key: entry[:3] for key, entry in self.model.items()}

    @invariant()
    def a_list_by_labels_is_what_the_model_says(self):
        found = self.run(self.reader.list("Pod", "a", {"l": "1"})).items
        expected = [
            key.name
            for key, entry in sorted(self.model.items())
            if (key.kind, key.namespace) == ("Pod", "a") and entry[1].get("l") == "1"
        ]
        assert [obj["metadata"]["name"] for obj in found] == expected


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
