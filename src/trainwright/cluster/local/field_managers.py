"""Server-side apply: who owns which field of an object, and what an apply makes of it. Pure.

Each manager that applies owns the fields of its last configuration. All other writers (create, patch) are one
more owner, so that a value somebody set by hand is neither overwritten nor removed unasked. An object that
was never applied has no record at all (None): everything in it belongs to those other writers, and it costs
nothing.

Apply merges the configuration into the object, and then drops what this manager owned before, no longer
mentions, and nobody else owns. `status`, and the metadata that the store itself writes, belong to nobody.

Source: Kubernetes documentation, "Server-Side Apply". Difference: a map that loses its last field in an apply
goes away instead of staying behind empty, because schemas refuse the null that an API server makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json
from trainwright.cluster.local.field_paths import (
    LIST_KEYS,
    Path,
    Paths,
    build_leaves,
    format_path,
    remove_paths,
    split_elements,
)
from trainwright.cluster.local.objects import STORE_METADATA
from trainwright.errors import Conflict

_UNOWNED = frozenset({"apiVersion", "kind", "status"})
_UNOWNED_METADATA = STORE_METADATA | {"name", "namespace", "generateName"}
_OTHER_WRITERS = "a create or patch"


class FieldManagers(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns which leaf: by manager for those that apply, `updated` for everybody else together."""

    applied: Mapping[str, Paths]
    updated: Paths = frozenset()


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What an apply results in."""

    object: Json
    managers: FieldManagers


def apply_configuration(
    live: Json | None, managers: FieldManagers | None, configuration: Json, manager: str, force: bool
) -> Applied:
    """Return the object, and who owns its fields, after `manager` applied the configuration.

    Raises Conflict, naming managers and fields, where another owner's value would change and `force` is
    false.
    """
    configuration = _drop_null(configuration)
    mentioned = _owned_leaves(configuration)
    if live is None:
        return Applied(object=configuration, managers=FieldManagers(applied={manager: frozenset(mentioned)}))
    before = _owned_leaves(live)
    if managers is None:
        managers = FieldManagers(applied={}, updated=frozenset(before))
    merged = _merge(live, configuration)
    after = _owned_leaves(merged)
    owners = {name: paths for name, paths in managers.applied.items() if name != manager}
    conflicts = {
        owner: lost
        for owner, paths in [*owners.items(), (_OTHER_WRITERS, managers.updated)]
        if (lost := _find_overwritten(paths, before, after))
    }
    if conflicts and not force:
        raise Conflict(_describe_conflicts(configuration, manager, conflicts))
    owners = {name: paths - conflicts.get(name, frozenset()) for name, paths in owners.items()}
    updated = managers.updated - conflicts.get(_OTHER_WRITERS, frozenset())
    kept = frozenset(mentioned).union(updated, *owners.values())
    abandoned = managers.applied.get(manager, frozenset()) - kept
    result = remove_paths(merged, abandoned, kept) if abandoned else merged
    return Applied(
        object=result,
        managers=FieldManagers(
            applied={
                **{name: paths for name, paths in owners.items() if paths},
                manager: frozenset(mentioned),
            },
            updated=updated,
        ),
    )


def record_update(managers: FieldManagers | None, before: Json, after: Json) -> FieldManagers | None:
    """Return who owns what after a write that was no apply: the writer owns what it changed."""
    if managers is None:
        return None
    old, new = _owned_leaves(before), _owned_leaves(after)
    changed = {path for path, value in new.items() if old.get(path) != value}
    unchanged = new.keys() - changed
    return FieldManagers(
        applied={name: left for name, paths in managers.applied.items() if (left := paths & unchanged)},
        updated=frozenset((managers.updated & unchanged) | changed),
    )


def encode_managers(managers: FieldManagers | None) -> bytes | None:
    """Return the record as JSON: paths as a tree, which is a third of their length as lists."""
    if managers is None:
        return None
    return encode_canonical(
        {
            "applied": {name: _build_tree(paths) for name, paths in managers.applied.items()},
            "updated": _build_tree(managers.updated),
        }
    )


def decode_managers(record: bytes | None) -> FieldManagers | None:
    """Return the record that `encode_managers` wrote."""
    if record is None:
        return None
    plain = msgspec.json.decode(record)
    return FieldManagers(
        applied={name: frozenset(_list_paths(tree, ())) for name, tree in plain["applied"].items()},
        updated=frozenset(_list_paths(plain["updated"], ())),
    )


def _owned_leaves(value: Json) -> dict[Path, bytes]:
    owned = {name: below for name, below in value.items() if name not in _UNOWNED and name != "metadata"}
    metadata = value.get("metadata") or {}
    if ours := {name: below for name, below in metadata.items() if name not in _UNOWNED_METADATA}:
        owned["metadata"] = ours
    return build_leaves(owned) if owned else {}


def _find_overwritten(paths: Paths, before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> Paths:
    # An empty map that has been filled is not overwritten: its owner never said what must not be in it.
    return frozenset(p for p in paths if p in before and before[p] != after.get(p) and before[p] != b"{}")


def _describe_conflicts(configuration: Json, manager: str, conflicts: Mapping[str, Paths]) -> str:
    metadata = configuration["metadata"]
    fields = "; ".join(
        f"{', '.join(format_path(path) for path in sorted(paths))} (set by {_quote(owner)})"
        for owner, paths in conflicts.items()
    )
    return (
        f"applying {configuration['kind']} {metadata['name']!r} as {manager!r} would change fields of "
        f"others: {fields}; leave them out, set them to the same values, or force the apply to take them over"
    )


def _quote(owner: str) -> str:
    return owner if owner == _OTHER_WRITERS else repr(owner)


def _drop_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_null(below) for name, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_drop_null(element) for element in value]
    return value


def _merge(live: Json, configuration: Json) -> Json:
    merged = dict(live)
    for name, value in configuration.items():
        current = merged.get(name)
        if isinstance(value, dict) and isinstance(current, dict):
            merged[name] = _merge(current, value)
        elif name in LIST_KEYS and (elements := _merge_elements(name, current, value)) is not None:
            merged[name] = elements
        else:
            merged[name] = value
    return merged


def _merge_elements(field: str, live: Any, configuration: Any) -> list[Json] | None:
    """Return both keyed lists as one; None where either is not keyed.

    Elements stand in the order of the configuration; those that only the object has keep their place between
    their neighbours. So managers that apply in turn, and agree on the order, change nothing.
    """
    ours, theirs = split_elements(field, configuration), split_elements(field, live)
    if ours is None or theirs is None:
        return None
    merged: dict[str, Json] = {}
    waiting = list(ours)
    for step, element in theirs.items():
        if step not in ours:
            merged[step] = element
        elif step not in merged:
            place = waiting.index(step) + 1
            merged.update({s: _merge(theirs.get(s, {}), ours[s]) for s in waiting[:place]})
            del waiting[:place]
    merged.update({s: _merge(theirs.get(s, {}), ours[s]) for s in waiting})
    return list(merged.values())


def _build_tree(paths: Paths) -> dict[str, Any]:
    # Steps get a leading dot, so that the end of a path ("") cannot be taken for a field without a name.
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(f".{step}", {})
        node[""] = 1
    return tree


def _list_paths(tree: Mapping[str, Any], path: Path) -> list[Path]:
    found: list[Path] = []
    for step, below in tree.items():
        if step == "":
            found.append(path)
        else:
            found.extend(_list_paths(below, (*path, step[1:])))
    return found
