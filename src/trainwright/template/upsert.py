"""Upserting into the keyed lists of a pod: replace the element that is meant, in its place, else append.

What frameworks and TrainJobs add to pods goes through here. The lists are made anew. Source: spec 02
section 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trainwright.api.meta import Json


def upsert_env(env: Sequence[Json] | None, entries: Iterable[Json]) -> list[Json]:
    """Return the environment with the entries in it, matched by name and replaced whole."""
    return _upsert(env, entries, lambda entry: entry.get("name"))


def upsert_volumes(volumes: Sequence[Json] | None, entries: Iterable[Json]) -> list[Json]:
    """Return the volumes with the entries in it, matched by name and replaced whole."""
    return _upsert(volumes, entries, lambda volume: volume.get("name"))


def upsert_volume_mounts(mounts: Sequence[Json] | None, entries: Iterable[Json]) -> list[Json]:
    """Return the volume mounts with the entries in it, matched by path and replaced whole."""
    return _upsert(mounts, entries, lambda mount: mount.get("mountPath"))


def upsert_containers(containers: Sequence[Json] | None, entries: Iterable[Json]) -> list[Json]:
    """Return the containers with the entries in it, matched by name; an entry's fields win, others stay."""
    return _upsert(containers, entries, lambda container: container.get("name"), keeps_fields=True)


def upsert_ports(ports: Sequence[Json] | None, entries: Iterable[Json]) -> list[Json]:
    """Return the ports with the entries in it.

    Two ports are the same when number and protocol are, or when both have the same name. Two ports without
    a name are not. The fields of an entry win, others stay: a named port keeps its name, which probes may
    refer to.
    """
    result = list(ports or ())
    for entry in entries:
        number, name = _port_number(entry), entry.get("name")
        place = next(
            (
                i
                for i, port in enumerate(result)
                if _port_number(port) == number or (name is not None and port.get("name") == name)
            ),
            None,
        )
        if place is None:
            result.append(entry)
        else:
            result[place] = {**result[place], **entry}
    return result


def _port_number(port: Json) -> tuple[Any, str]:
    return port.get("containerPort"), port.get("protocol") or "TCP"


def _upsert(
    elements: Sequence[Json] | None,
    entries: Iterable[Json],
    identify: Callable[[Json], Any],
    *,
    keeps_fields: bool = False,
) -> list[Json]:
    result = list(elements or ())
    places = {identify(element): i for i, element in reversed(list(enumerate(result)))}
    for entry in entries:
        identity = identify(entry)
        if identity in places:
            place = places[identity]
            result[place] = {**result[place], **entry} if keeps_fields else entry
        else:
            places[identity] = len(result)
            result.append(entry)
    return result
