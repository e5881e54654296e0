"""What an informer knows: objects by key, with indexes. No I/O: changes go in, differences come out.

Objects are typed projections (msgspec structs with the few fields that are read), never changed in place.
Resource versions are opaque: compared for equality only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from trainwright.api.meta import ObjectMeta


class Watched(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, labels, owners."""
        ...


T = TypeVar("T", bound=Watched)

StoreKey = tuple[str, str]  # namespace ("" for cluster-scoped kinds), name
IndexFunction = Callable[[T], Iterable[str]]


class Difference(msgspec.Struct, Generic[T], frozen=True):
    """What changed for one key: `old` is None for a new object, `new` for one that is gone."""

    key: StoreKey
    old: T | None
    new: T | None


class Store(Generic[T]):
    """The objects of one kind."""

    def __init__(self, indexes: dict[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[StoreKey, T] = {}
        self._functions = indexes or {}
        self._indexes: dict[str, dict[str, set[StoreKey]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        """How many objects."""
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """All objects, in no particular order."""
        return iter(list(self._objects.values()))

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object, or None."""
        return self._objects.get((namespace, name))

    def list_by(self, index: str, value: str) -> list[T]:
        """Return the objects that an index files under a value, by name."""
        keys = self._indexes[index].get(value, ())
        return [self._objects[key] for key in sorted(keys)]

    def count_by(self, index: str, value: str) -> int:
        """Return how many objects an index files under a value."""
        return len(self._indexes[index].get(value, ()))

    def put(self, obj: T) -> Difference[T] | None:
        """Take in an object as it is now; None if this very version is there already."""
        key = store_key(obj)
        old = self._objects.get(key)
        if old is not None and _is_same_version(old, obj):
            return None
        if old is not None:
            self._unfile(key, old)
        self._objects[key] = obj
        self._file(key, obj)
        return Difference(key, old, obj)

    def remove(self, key: StoreKey) -> Difference[T] | None:
        """Forget an object; None if it is not there."""
        old = self._objects.pop(key, None)
        if old is None:
            return None
        self._unfile(key, old)
        return Difference(key, old, None)

    def replace(self, objects: Iterable[T]) -> list[Difference[T]]:
        """Take in a complete list: what is missing in it is gone, whatever was missed meanwhile."""
        fresh = {store_key(obj): obj for obj in objects}
        gone = [self.remove(key) for key in list(self._objects) if key not in fresh]
        changed = [self.put(obj) for obj in fresh.values()]
        return [difference for difference in (*gone, *changed) if difference is not None]

    def _file(self, key: StoreKey, obj: T) -> None:
        for name, function in self._functions.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, set()).add(key)

    def _unfile(self, key: StoreKey, obj: T) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in function(obj):
                keys = index.get(value)
                if keys is not None:
                    keys.discard(key)
                    if not keys:
                        del index[value]


def store_key(obj: Watched) -> StoreKey:
    """Return the key under which an object is stored."""
    return (obj.metadata.namespace or "", obj.metadata.name)


def _is_same_version(old: Watched, new: Watched) -> bool:
    return (old.metadata.uid, old.metadata.resource_version) == (
        new.metadata.uid,
        new.metadata.resource_version,
    )
