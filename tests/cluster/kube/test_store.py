"""What an informer knows, and that any history of a watch ends like a list."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.core import Pod
from trainwright.api.meta import ObjectMeta
from trainwright.cluster.kube.store import Difference, Store


def pod(name, version="1", label="a"):
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="ns", uid=f"uid-{name}", resource_version=version, labels={"group": label}
        )
    )


def by_group(obj):
    return [obj.metadata.labels["group"]]


def test_a_difference_has_the_old_and_the_new_object():
    store = Store()
    first, second = pod("a", "1"), pod("a", "2")
    assert store.put(first) == Difference(("ns", "a"), None, first)
    assert store.put(second) == Difference(("ns", "a"), first, second)
    assert store.put(pod("a", "2")) is None
    assert store.remove(("ns", "a")) == Difference(("ns", "a"), second, None)
    assert store.remove(("ns", "a")) is None


def test_a_complete_list_tells_what_was_deleted_meanwhile():
    store = Store()
    store.put(pod("gone"))
    store.put(pod("same"))
    differences = store.replace([pod("same"), pod("new")])
    assert differences == [
        Difference(("ns", "gone"), pod("gone"), None),
        Difference(("ns", "new"), None, pod("new")),
    ]


HISTORIES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "delete", "relist"]), st.sampled_from("xy")),
    max_size=30,
)


@given(HISTORIES)
def test_any_history_ends_in_the_same_store_as_a_list(history):
    store = Store({"group": by_group})
    world: dict[str, Pod] = {}
    told: dict[str, Pod] = {}

    def hear(difference):
        if difference is not None:
            assert told.get(difference.key[1]) == difference.old
            told[difference.key[1]] = difference.new
            if difference.new is None:
                del told[difference.key[1]]

    for version, (name, action, label) in enumerate(history, start=1):
        if action == "put":
            world[name] = pod(name, str(version), label)
            hear(store.put(world[name]))
        elif action == "delete":
            world.pop(name, None)
            hear(store.remove(("ns", name)))
        else:
            for difference in store.replace(list(world.values())):
                hear(difference)
    listed = Store({"group": by_group})
    listed.replace(list(world.values()))
    assert {p.metadata.name: p for p in store} == {p.metadata.name: p for p in listed} == told
    for label in "xy":
        assert store.list_by("group", label) == listed.list_by("group", label)
