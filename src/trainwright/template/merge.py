"""Strategic merge of plain JSON: a patch laid over an original, with lists merged by key where a table says.

Knows nothing about runtimes; `template.patches` brings the table. Pure: the arguments are never changed, the
result may share parts with them.

Rules, for a patch P over an original O:

- maps merge key by key, everything else is replaced by P;
- what P does not say (absent, null, an empty map or list) leaves O as it is: a patch cannot remove anything;
- a list with a rule merges by the rule's key. Elements of O keep their places, new ones are appended in the
  order of P. So `$(VAR)` in a new environment variable may refer to any variable of the original;
- a list without a rule is replaced whole.

The peer puts elements that are new *before* the first one it has not seen yet, which breaks such references.
Source: spec 01, section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# Where an empty map says nothing. Elsewhere it means something: `emptyDir: {}`, `labelSelector: {}` (all
# pods). Applied after a value was there, an empty map becomes null on the API server, and the JobSet schema
# refuses null.
EMPTY_MEANS_ABSENT: Final = frozenset(
    {
        "metadata",
        "labels",
        "annotations",
        "nodeSelector",
        "resources",
        "limits",
        "requests",
        "affinity",
        "nodeAffinity",
        "podAffinity",
        "podAntiAffinity",
        "securityContext",
        "capabilities",
        "seLinuxOptions",
        "windowsOptions",
        "network",
    }
)


class KeyedList(msgspec.Struct, frozen=True, kw_only=True):
    """How a list of maps is merged: elements with the same value of `key` belong together.

    Without a key only equal ones do, so that a patch adds what is not there.
    `replaces`: an element of the patch takes the place of the original's whole element, instead of being
    merged into it; one that holds nothing but its key changes nothing. `adds`: elements that the original
    does not have are appended; otherwise they are left out.
    """

    key: str | None
    replaces: bool = False
    adds: bool = True


# The path of a list, `.`-separated and without indexes -> how to merge it.
KeyedLists = Mapping[str, KeyedList]


def merge(
    original: Mapping[str, Any], patch: Mapping[str, Any], lists: KeyedLists, path: str = ""
) -> dict[str, Any]:
    """Return the original with the patch laid over it; `path` is where both stand in the table `lists`."""
    merged = dict(original)
    for key, value in patch.items():
        if says_nothing(key, value):
            continue
        current = merged.get(key)
        below = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            merged[key] = merge(current if isinstance(current, Mapping) else {}, value, lists, below)
            if not merged[key] and key in EMPTY_MEANS_ABSENT:
                del merged[key]
        elif isinstance(value, list) and below in lists:
            merged[key] = _merge_list(current if isinstance(current, list) else [], value, lists, below)
        else:
            merged[key] = value
    return merged


def says_nothing(key: str, value: Any) -> bool:
    """Say whether a value under this key is the same as no value at all."""
    return value is None or value == [] or (value == {} and key in EMPTY_MEANS_ABSENT)


def _merge_list(original: list[Any], patch: list[Any], lists: KeyedLists, path: str) -> list[Any]:
    rule = lists[path]
    merged = list(original)
    places = _Places(rule.key)
    for i, element in enumerate(merged):
        places.add(element, i)
    for element in patch:
        found = places.find(element, merged)
        for i in found:
            merged[i] = _merge_element(merged[i], element, lists, path)
        if not found and rule.adds:
            places.add(element, len(merged))
            merged.append(element)
    return merged


class _Places:
    """Where the elements of a list stand, by what tells them apart.

    Patches of all managers together may have thousands of elements, so they are not compared with each other.
    Elements without a key of text are few, and are.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._named: dict[str, list[int]] = {}
        self._others: list[int] = []

    def add(self, element: Any, place: int) -> None:
        identity = _identity(element, self._key)
        (self._named.setdefault(identity, []) if isinstance(identity, str) else self._others).append(place)

    def find(self, element: Any, elements: list[Any]) -> list[int]:
        """Return where the elements like this one stand in the list."""
        identity = _identity(element, self._key)
        if isinstance(identity, str):
            return self._named.get(identity, [])
        return [i for i in self._others if _identity(elements[i], self._key) == identity]


def _merge_element(original: Any, element: Any, lists: KeyedLists, path: str) -> Any:
    rule = lists[path]
    if not rule.replaces:
        return merge(original, element, lists, path)
    return element if element.keys() - {rule.key} else original


def _identity(element: Any, key: str | None) -> Any:
    if key is None:
        return element
    return element.get(key) if isinstance(element, Mapping) else None
