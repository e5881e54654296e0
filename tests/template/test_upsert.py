from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.template.upsert import (
    upsert_containers,
    upsert_env,
    upsert_ports,
    upsert_volume_mounts,
    upsert_volumes,
)

Elements = list[dict[str, Any]]
# existing, entries -> result (spec 02 section 2.8)
CASES: dict[str, tuple[Callable[..., Elements], Elements | None, Elements, Elements]] = {
    "env: nothing there": (upsert_env, None, [{"name": "A", "value": "1"}], [{"name": "A", "value": "1"}]),
    "env: replaced whole in place, else appended": (
        upsert_env,
        [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        [{"name": "C", "value": "2"}, {"name": "A", "valueFrom": {"x": 1}}],
        [{"name": "A", "valueFrom": {"x": 1}}, {"name": "B", "value": "1"}, {"name": "C", "value": "2"}],
    ),
    "env: the later of two entries wins": (
        upsert_env,
        [],
        [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        [{"name": "A", "value": "2"}],
    ),
    "volumes: by name": (
        upsert_volumes,
        [{"name": "v", "emptyDir": {}}],
        [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "emptyDir": {}}],
        [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "emptyDir": {}}],
    ),
    "mounts: by path": (
        upsert_volume_mounts,
        [{"name": "v", "mountPath": "/a", "readOnly": True}],
        [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/a"}],
        [{"name": "w", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}],
    ),
    "containers: fields of an entry win, others stay": (
        upsert_containers,
        [{"name": "i", "image": "a", "args": ["x"]}],
        [{"name": "i", "image": "b"}, {"name": "j", "image": "c"}],
        [{"name": "i", "image": "b", "args": ["x"]}, {"name": "j", "image": "c"}],
    ),
    "ports: nothing there": (upsert_ports, None, [{"containerPort": 29500}], [{"containerPort": 29500}]),
    "ports: two without a name are two ports": (
        upsert_ports,
        [{"containerPort": 8080}, {"containerPort": 9090}],
        [{"containerPort": 29500}],
        [{"containerPort": 8080}, {"containerPort": 9090}, {"containerPort": 29500}],
    ),
    "ports: the same number is the same port and keeps its name": (
        upsert_ports,
        [{"containerPort": 29500, "name": "rdzv", "protocol": "TCP"}],
        [{"containerPort": 29500}],
        [{"containerPort": 29500, "name": "rdzv", "protocol": "TCP"}],
    ),
    "ports: another protocol is another port": (
        upsert_ports,
        [{"containerPort": 29500, "protocol": "UDP"}],
        [{"containerPort": 29500}],
        [{"containerPort": 29500, "protocol": "UDP"}, {"containerPort": 29500}],
    ),
    "ports: the same name is the same port": (
        upsert_ports,
        [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "b"}],
        [{"containerPort": 3, "name": "b"}],
        [{"containerPort": 1, "name": "a"}, {"containerPort": 3, "name": "b"}],
    ),
    "ports: different names are kept apart": (
        upsert_ports,
        [{"containerPort": 1, "name": "a"}],
        [{"containerPort": 2, "name": "b"}],
        [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "b"}],
    ),
}


@pytest.mark.parametrize(("upsert", "existing", "entries", "result"), CASES.values(), ids=CASES)
def test_upserting(
    upsert: Callable[..., Elements], existing: Elements | None, entries: Elements, result: Elements
) -> None:
    before = [dict(element) for element in existing or ()]
    assert upsert(existing, entries) == result
    assert (existing or []) == before
