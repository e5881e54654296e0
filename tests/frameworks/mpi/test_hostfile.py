"""The hostfile: every host once, in rank order, in both forms, and in objects that an API server takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworks.mpi.builders import mpi_layout, mpi_runtime
from trainwright.api.meta import Json
from trainwright.api.runtime import MPIPolicy
from trainwright.frameworks.mpi.hostfile import HYDRA, MAX_PART_BYTES, OPEN_MPI, Hostfile, build_hostfile
from trainwright.frameworks.mpi.nodes import list_training_pod_sets

MEBIBYTE = 1024 * 1024
LAUNCHER = {"name": "node", "image": "registry.example/img:1"}


def build(endpoints: list[str], slots: int = 2, main_form: str = OPEN_MPI, **launcher: Any) -> Hostfile:
    hosts = {OPEN_MPI: endpoints, HYDRA: endpoints}
    return build_hostfile("demo", hosts, slots, main_form, {**LAUNCHER, **launcher})


def read(hostfile: Hostfile, file: str) -> str:
    """The file as mpirun finds it."""
    return "".join(obj["data"][file] for obj in hostfile.objects)


def config_map(name: str, data: Json) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def list_endpoints(count: int, name: str = "demo") -> list[str]:
    return [f"{name}-node-0-{i}.{name}" for i in range(count)]


FORMS = {
    OPEN_MPI: {
        "hostfile": "demo-node-0-0.demo slots=2\ndemo-node-0-1.demo slots=2\n",
        "hostfile-hydra": "demo-node-0-0.demo:2\ndemo-node-0-1.demo:2\n",
    },
    HYDRA: {
        "hostfile": "demo-node-0-0.demo:2\ndemo-node-0-1.demo:2\n",
        "hostfile-openmpi": "demo-node-0-0.demo slots=2\ndemo-node-0-1.demo slots=2\n",
    },
}


@pytest.mark.parametrize(("main_form", "data"), FORMS.items(), ids=FORMS)
def test_both_forms_are_there_and_the_main_one_is_called_hostfile(main_form: str, data: Json) -> None:
    assert build(list_endpoints(2), main_form=main_form) == Hostfile(
        objects=(config_map("demo-mpi-hostfile", data),),
        volumes=(
            {
                "name": "mpi-hostfile",
                "configMap": {
                    "name": "demo-mpi-hostfile",
                    "items": [{"key": file, "path": file, "mode": 0o444} for file in data],
                },
            },
        ),
    )


def test_a_list_of_no_hosts_is_an_empty_file() -> None:
    [obj] = build([]).objects
    assert obj["data"] == {"hostfile": "", "hostfile-hydra": ""}


def test_a_long_list_is_cut_and_joined_in_the_launchers_image() -> None:
    endpoints = list_endpoints(10_000, "a" * 44)
    joined = build(
        endpoints,
        imagePullPolicy="Always",
        securityContext={"runAsUser": 1000},
        resources={"limits": {"cpu": "1"}},
        command=["mpirun"],
        env=[{"name": "A", "value": "1"}],
    )
    names = [obj["metadata"]["name"] for obj in joined.objects]
    assert names == [f"demo-mpi-hostfile-{i}" for i in range(len(names))]
    assert joined.volumes == (
        {"name": "mpi-hostfile", "emptyDir": {}},
        {
            "name": "mpi-hostfile-parts",
            "projected": {
                "sources": [
                    {
                        "configMap": {
                            "name": name,
                            "items": [
                                {"key": file, "path": f"{i:04}/{file}", "mode": 0o444}
                                for file in ("hostfile", "hostfile-hydra")
                            ],
                        }
                    }
                    for i, name in enumerate(names)
                ]
            },
        },
    )
    assert joined.init_containers == (
        {
            "name": "mpi-hostfile",
            "image": "registry.example/img:1",
            "imagePullPolicy": "Always",
            "securityContext": {"runAsUser": 1000},
            "resources": {"limits": {"cpu": "1"}},
            "command": [
                "/bin/sh",
                "-c",
                "cat /etc/mpi-parts/*/hostfile > /etc/mpi/hostfile"
                " && cat /etc/mpi-parts/*/hostfile-hydra > /etc/mpi/hostfile-hydra",
            ],
            "volumeMounts": [
                {"name": "mpi-hostfile", "mountPath": "/etc/mpi"},
                {"name": "mpi-hostfile-parts", "mountPath": "/etc/mpi-parts", "readOnly": True},
            ],
        },
    )


def test_the_shell_of_the_init_container_joins_the_parts_in_order(tmp_path: Path) -> None:
    hostfile = build(list_endpoints(45_000, "a" * 30))
    assert len(hostfile.objects) > 4
    [projected] = [volume["projected"] for volume in hostfile.volumes if "projected" in volume]
    objects = {obj["metadata"]["name"]: obj for obj in hostfile.objects}
    for source in projected["sources"]:
        for item in source["configMap"]["items"]:
            target = tmp_path / "etc/mpi-parts" / item["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(objects[source["configMap"]["name"]]["data"][item["key"]])
    (tmp_path / "etc/mpi").mkdir()
    script = hostfile.init_containers[0]["command"][2].replace("/etc/", f"{tmp_path}/etc/")
    subprocess.run(["/bin/sh", "-c", script], check=True)
    for file in ("hostfile", "hostfile-hydra"):
        assert (tmp_path / "etc/mpi" / file).read_text() == read(hostfile, file)


@given(
    count=st.integers(0, 20_000),
    name=st.text("ab-", min_size=1, max_size=44).map(lambda text: f"a{text}"),
    slots=st.integers(1, 1000),
    main_form=st.sampled_from([OPEN_MPI, HYDRA]),
)
def test_every_host_is_there_once_in_order_and_no_object_is_too_large(
    count: int, name: str, slots: int, main_form: str
) -> None:
    endpoints = list_endpoints(count, name)
    hostfile = build(endpoints, slots, main_form)
    files = {form: "hostfile" if form == main_form else f"hostfile-{form.lower()}" for form in FORMS}
    assert read(hostfile, files[OPEN_MPI]).splitlines() == [f"{host} slots={slots}" for host in endpoints]
    assert read(hostfile, files[HYDRA]).splitlines() == [f"{host}:{slots}" for host in endpoints]
    for obj in hostfile.objects:
        assert sum(map(len, obj["data"].values())) <= MAX_PART_BYTES
        assert len(json.dumps(obj)) < MEBIBYTE
    assert bool(hostfile.init_containers) == (len(hostfile.objects) > 1)


# Order in the template, launcher is a node, numNodes -> pod sets in rank order and their pods.
RANKS = {
    "launcher apart": (False, 2, [("node", 2)]),
    "the launcher first, where it is a node": (True, 3, [("launcher", 1), ("node", 2)]),
    "the launcher alone": (True, 1, [("launcher", 1), ("node", 0)]),
}


@pytest.mark.parametrize(("is_node", "num_nodes", "expected"), RANKS.values(), ids=RANKS)
def test_who_trains_in_rank_order(is_node: bool, num_nodes: int, expected: list) -> None:
    layout = mpi_layout(mpi_runtime(policy=MPIPolicy(run_launcher_as_node=is_node)), num_nodes=num_nodes)
    assert [(pod_set.name, pod_set.count) for pod_set in list_training_pod_sets(layout)] == expected
