"""The fields of an object as a flat set of paths: what field managers own.

A path is a tuple of field names; an element of a keyed list appears as `[name=node]`, so that owning an
element does not depend on its place. Only leaves have paths: scalars, empty maps, lists that are not keyed
(such a list is owned as a whole), and each element of a keyed list (owned besides the fields within it).

Source: Kubernetes documentation, "Server-Side Apply", sections "Field management" and "Merge strategy".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json

Path = tuple[str, ...]
Paths = frozenset[Path]

# Lists whose elements have an identity, by the name of the field, and the fields that make the identity.
# Kubernetes says this path by path in its schemas; among the kinds kept here each of these names means one
# thing, and a list that has no such elements is treated as a whole. All other lists are replaced whole.
LIST_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "claims": ("name",),
    "containers": ("name",),
    "dependsOn": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "protocol"),
    "replicatedJobs": ("name",),
    "runtimePatches": ("manager",),
    "schedulingGates": ("name",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
# Parts of an identity that may be left out, and what that means.
_KEY_DEFAULTS: Final[dict[str, Any]] = {"protocol": "TCP"}

_ELEMENT: Final = b""  # the value of an element's own path: it has none besides being there
_END: Final = None  # in a tree of paths: one of them ends here

_Tree = dict[str | None, Any]


def format_path(path: Path) -> str:
    """Return the path as users know it: `spec.replicatedJobs[name=node].replicas`."""
    return "".join(step if step.startswith("[") else f".{step}" for step in path).removeprefix(".")


def build_leaves(value: Json) -> dict[Path, bytes]:
    """Return every leaf of the object with its value as canonical JSON, which tells 1 from true."""
    return dict(_walk(value, ()))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, bytes]]:
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from _walk(below, (*path, name))
        return
    elements = split_elements(path[-1], value) if path else None
    if elements is None:
        yield path, encode_canonical(value)
        return
    for step, element in elements.items():
        yield (*path, step), _ELEMENT
        yield from _walk(element, (*path, step))


def split_elements(field: str, value: Any) -> dict[str, Json] | None:
    """Return the elements of a keyed list by their step, in order; None for whatever is not a keyed list."""
    keys = LIST_KEYS.get(field)
    if keys is None or not isinstance(value, list) or not value:
        return None
    elements: dict[str, Json] = {}
    for element in value:
        if not isinstance(element, dict):
            return None
        identity = [(key, element.get(key, _KEY_DEFAULTS.get(key))) for key in keys]
        step = f"[{','.join(f'{key}={part}' for key, part in identity)}]"
        if step in elements or any(part is None for _, part in identity):
            return None
        elements[step] = element
    return elements


def remove_paths(value: Json, paths: Iterable[Path], kept: Paths) -> Json:
    """Return the object without these leaves, and without the maps and lists that they leave empty.

    Leaves that are not there are ignored, and so is a path where more has grown since: `labels` as an empty
    map is not removed once it holds labels. Nothing in `kept` goes, nor does a list element that holds any of
    it.
    """
    doomed: _Tree = {}
    for path in paths:
        node = doomed
        for step in path:
            node = node.setdefault(step, {})
        node[_END] = {}
    return _remove(value, doomed, (), kept)


def _remove(value: Json, doomed: _Tree, path: Path, kept: Paths) -> Json:
    left: Json = {}
    for name, below in value.items():
        node = doomed.get(name)
        here = (*path, name)
        if node is None:
            left[name] = below
            continue
        elements = split_elements(name, below)
        if elements is not None:
            rest = _remove_elements(name, elements, node, here, kept)
            if rest or here in kept:
                left[name] = rest
        elif isinstance(below, dict) and below:
            rest_map = _remove(below, node, here, kept)
            if rest_map or here in kept:
                left[name] = rest_map
        elif _END not in node or here in kept:
            left[name] = below
    return left


def _remove_elements(
    field: str, elements: dict[str, Json], doomed: _Tree, path: Path, kept: Paths
) -> list[Json]:
    left = []
    for step, element in elements.items():
        node = doomed.get(step)
        here = (*path, step)
        if node is None:
            left.append(element)
        elif _END not in node or any(owned[: len(here)] == here for owned in kept):
            identity = {key: element[key] for key in LIST_KEYS[field] if key in element}
            left.append({**_remove(element, node, here, kept), **identity})
    return left
