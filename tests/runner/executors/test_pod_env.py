"""Environment and command line of a container, as values."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.runner.executor import PodContext
from trainwright.runner.executors.pod_env import (
    RANK_MARK_TEMPLATE,
    Machine,
    Missing,
    PodIdentity,
    build_arguments,
    build_environment,
    build_names,
    expand,
    find_rank_base,
    find_rendezvous_hosts,
    rewrite,
)

MACHINE = Machine(cpus=8, memory_bytes=1 << 30)
WITHOUT_NAMES = Machine(cpus=8, memory_bytes=1 << 30, own_names=False)
POD = {
    "metadata": {
        "name": "demo-node-0-1-abcde",
        "namespace": "team",
        "uid": "1234",
        "labels": {"app": "demo", "jobset.sigs.k8s.io/job-index": "0"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
    },
    "spec": {},
}
NAMES = build_names(("demo-node-0-0", "demo-node-0-1"), "demo", "team")
IDENTITY = PodIdentity(pod=POD, host_name="demo-node-0-1", address="127.1.0.2", addresses=NAMES)


def context(**fields):
    defaults = {
        "folder": Path("/pod"),
        "shared_folder": Path("/shared"),
        "mount_points": Path("/mount-points"),
        "host_names": ("demo-node-0-0", "demo-node-0-1"),
        "subdomain": "demo",
        "working_directory": Path("/work"),
        "environment": {},
        "ports": {29500: 41000},
    }
    return PodContext(**{**defaults, **fields})


def environment_of(container, machine=MACHINE, **fields):
    return build_environment(container, IDENTITY, context(**fields), machine)


def values(**variables):
    return {"env": [{"name": name, "value": value} for name, value in variables.items()]}


EXPANSIONS = {
    "a defined name": ("$(A)", "1"),
    "an undefined name stays": ("$(NOPE)", "$(NOPE)"),
    "two dollars are one": ("$$(A)", "$(A)"),
    "a dollar before anything else stays": ("$A ${A}", "$A ${A}"),
    "an open bracket without end stays": ("$(A", "$(A"),
    "not twice": ("$(DOLLAR)(A)", "$(A)"),
    "next to each other": ("$(A)$(A)", "11"),
}


@pytest.mark.parametrize(("text", "expected"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_references_are_expanded_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1", "DOLLAR": "$"}) == expected


@given(st.text())
def test_an_escaped_text_comes_out_as_it_was(text):
    assert expand(text.replace("$", "$$"), {"A": "1"}) == text


@given(st.text(alphabet="ab(){} /=:\n"))
def test_a_text_without_dollars_never_changes(text):
    assert expand(text, {"a": "1"}) == text


def test_the_pods_own_values_win_over_ours_and_these_over_the_callers():
    environment = environment_of(
        values(C="pod"),
        environment={"A": "caller", "B": "caller", "C": "caller"},
        extra_environment={"B": "ours", "C": "ours"},
    )
    assert (environment["A"], environment["B"], environment["C"]) == ("caller", "ours", "pod")


def test_the_identity_of_an_outer_launcher_is_not_inherited():
    inherited = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "1", "PET_NNODES": "7", "KEEP": "1"}
    environment = environment_of({}, environment=inherited)
    assert inherited.keys() & environment.keys() == {"KEEP"}


def test_later_variables_see_earlier_ones_but_not_later_ones():
    environment = environment_of(values(A="1", B="$(A)2", C="$(D)", D="3"))
    assert (environment["B"], environment["C"]) == ("12", "$(D)")


FIELDS = {
    "metadata.name": "demo-node-0-1-abcde",
    "metadata.namespace": "team",
    "metadata.uid": "1234",
    "metadata.labels['app']": "demo",
    "metadata.annotations['batch.kubernetes.io/job-completion-index']": "1",
    "metadata.labels['missing']": "",
    "metadata.labels": 'app="demo"\njobset.sigs.k8s.io/job-index="0"',
    "status.podIP": "127.1.0.2",
    "status.hostIP": "127.0.0.1",
}


@pytest.mark.parametrize(("path", "expected"), FIELDS.items(), ids=FIELDS)
def test_a_field_of_the_pod_is_read(path, expected):
    container = {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}
    assert environment_of(container)["X"] == expected


RESOURCES = {
    "a limit": ({"resource": "limits.cpu"}, "2"),
    "rounded up": ({"resource": "requests.cpu"}, "2"),
    "in units": ({"resource": "requests.cpu", "divisor": "1m"}, "1500"),
    "memory in units": ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
    "a request that is not set is the limit": ({"resource": "requests.memory", "divisor": "1Mi"}, "1024"),
}


@pytest.mark.parametrize(("reference", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_a_resource_is_read(reference, expected):
    container = {
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1500m"}},
        "env": [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}],
    }
    assert environment_of(container)["X"] == expected


def test_a_limit_that_is_not_set_is_the_machines():
    container = {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}
    assert environment_of(container)["X"] == "8"


MAPS = {"cm": {"A": b"1", "B": b"2", "not a name": b"3"}}


def test_all_of_a_config_map_comes_with_a_prefix_and_gives_way_to_single_values():
    container = {"envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}], **values(P_B="own")}
    environment = environment_of(container, config_maps=MAPS)
    assert (environment["P_A"], environment["P_B"]) == ("1", "own")
    assert "P_not a name" not in environment


MISSING = {
    "all of a config map": (
        {"envFrom": [{"configMapRef": {"name": "gone"}}]},
        'configmap "gone" not found',
    ),
    "all of a secret": ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
    "one key of a missing map": (
        {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]},
        'configmap "gone" not found',
    ),
    "a missing key": (
        {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}]},
        "couldn't find key k in ConfigMap team/cm",
    ),
}


@pytest.mark.parametrize(("container", "message"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_said_in_kubernetes_words(container, message):
    with pytest.raises(Missing) as caught:
        environment_of(container, config_maps=MAPS)
    assert str(caught.value) == message


def test_what_is_optional_may_be_missing():
    container = {
        "envFrom": [{"secretRef": {"name": "gone", "optional": True}}],
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}}],
    }
    assert "X" not in environment_of(container)


PORTS = {
    "host and port": ("demo-node-0-0.demo:29500", "demo-node-0-0.demo:41000"),
    "short host": ("tcp://demo-node-0-1:29500/x", "tcp://demo-node-0-1:41000/x"),
    "loopback": ("localhost:29500,127.0.0.1:29500", "localhost:41000,127.0.0.1:41000"),
    "an option": ("--master-port=29500", "--master-port=41000"),
    "in a line for a shell": ("torchrun --master_port 29500 x.py", "torchrun --master_port 41000 x.py"),
    "another host's port stays": ("db.example.com:29500", "db.example.com:29500"),
    "a longer host stays": ("mydemo-node-0-0.demo:29500", "mydemo-node-0-0.demo:29500"),
    "a longer number stays": ("localhost:295001", "localhost:295001"),
    "a plain number stays": ("29500", "29500"),
    "an option for something else stays": ("--steps=29500", "--steps=29500"),
}


@pytest.mark.parametrize(("text", "expected"), PORTS.values(), ids=PORTS)
def test_the_jobs_port_takes_the_place_of_the_usual_one(text, expected):
    assert rewrite(text, IDENTITY, context(), MACHINE) == expected


def test_a_host_with_a_port_of_its_own_has_it_by_every_name():
    own = {"demo-node-0-1": {29500: 41001}}
    text = '{"worker":["demo-node-0-0.demo:29500","demo-node-0-1.demo:29500"],"short":"demo-node-0-1:29500"}'
    assert rewrite(text, IDENTITY, context(host_ports=own), MACHINE) == (
        '{"worker":["demo-node-0-0.demo:41000","demo-node-0-1.demo:41001"],"short":"demo-node-0-1:41001"}'
    )
    assert rewrite("demo-node-0-1.demo.team:29500", IDENTITY, context(host_ports=own), WITHOUT_NAMES) == (
        "127.0.0.1:41001"
    )


def test_a_port_that_takes_the_place_of_another_is_not_replaced_again():
    fitted = context(ports={29500: 2222, 2222: 29500})
    text = "demo-node-0-0:29500 demo-node-0-1:2222 --port 2222"
    assert rewrite(text, IDENTITY, fitted, MACHINE) == "demo-node-0-0:2222 demo-node-0-1:29500 --port 29500"


def test_a_variable_for_a_port_and_an_option_with_its_value_apart_are_rewritten():
    container = {
        **values(PET_MASTER_PORT="29500", STEPS="29500"),
        "command": ["run", "--master-port", "29500"],
    }
    environment = environment_of(container)
    assert (environment["PET_MASTER_PORT"], environment["STEPS"]) == ("41000", "29500")
    assert build_arguments(container, environment, IDENTITY, context(), MACHINE)[-1] == "41000"


def test_what_the_caller_has_is_never_rewritten():
    assert environment_of({}, environment={"DB_PORT": "29500"})["DB_PORT"] == "29500"


ADDRESSES = {
    "the long name": ("demo-node-0-0.demo", "127.0.0.1"),
    "the short name": ("demo-node-0-0", "127.0.0.1"),
    "the whole name": ("demo-node-0-0.demo.team.svc.cluster.local", "127.0.0.1"),
    "with a port": ("demo-node-0-0.demo:29500", "127.0.0.1:41000"),
    "a longer name stays": ("demo-node-0-01", "demo-node-0-01"),
    "a file of that name stays": ("demo-node-0-0.json", "demo-node-0-0.json"),
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.values(), ids=ADDRESSES)
def test_without_own_names_addresses_are_the_loopbacks(text, expected):
    assert rewrite(text, IDENTITY, context(), WITHOUT_NAMES) == expected


def test_a_pod_without_a_subdomain_has_one_name():
    assert build_names(["alone"], "", "team") == {"alone": "127.1.0.1"}


def test_addresses_differ_and_stay_on_the_loopback():
    names = build_names([f"host-{n}" for n in range(70_000)], "demo", "team")
    assert names["host-0.demo"] == names["host-0"] == "127.1.0.1"
    assert names["host-254"] == "127.1.1.1"
    assert len(set(names.values())) == 70_000
    assert all(ip_address(address) in ip_network("127.0.0.0/8") for address in set(names.values()))


TORCH = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "demo-node-0-0.demo"}


@pytest.mark.parametrize(
    ("processes", "devices", "count", "threads"),
    [
        ("auto", (), "4", "1"),
        ("cpu", (), "4", "1"),
        ("auto", ("GPU-a", "GPU-b"), "2", "2"),
        ("gpu", ("GPU-a",), "gpu", "4"),
        ("1", (), "1", "4"),
        ("16", (), "16", "1"),
    ],
)
def test_processes_and_threads_are_shared_out_among_the_pods(processes, devices, count, threads):
    environment = environment_of(values(**TORCH, PET_NPROC_PER_NODE=processes), devices=devices)
    assert (environment["PET_NPROC_PER_NODE"], environment["OMP_NUM_THREADS"]) == (count, threads)


IN_SLICES = {
    "TRAINWRIGHT_SLICE_INDEX": "1",
    "PET_NNODES": "4",
    "PET_NPROC_PER_NODE": "2",
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": "demo-node-0-0.demo:29500",
}


def test_nodes_in_slices_are_told_the_rank_that_is_known_here():
    environment = environment_of(values(**IN_SLICES), WITHOUT_NAMES, node_rank=3)
    assert (environment["PET_NODE_RANK"], environment["PET_RDZV_BACKEND"]) == ("3", "static")
    assert environment["PET_RDZV_ENDPOINT"] == "127.0.0.1:41000"
    assert find_rank_base(environment, 2) == 6


@pytest.mark.parametrize(
    ("changes", "node_rank"),
    [({"PET_NNODES": "2:4"}, 3), ({}, None)],
    ids=["a range of nodes", "a step that does not train"],
)
def test_else_nodes_in_slices_are_numbered_by_torchrun(changes, node_rank):
    environment = environment_of(values(**{**IN_SLICES, **changes}), node_rank=node_rank)
    assert "PET_NODE_RANK" not in environment
    assert environment["PET_RDZV_BACKEND"] == "c10d"


def test_devices_are_named_and_none_means_none():
    assert environment_of({}, devices=("GPU-a", "GPU-b"))["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert environment_of({}, environment={"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == ""
    assert environment_of(values(CUDA_VISIBLE_DEVICES="3"))["CUDA_VISIBLE_DEVICES"] == "3"


def test_torchrun_marks_ranks_only_where_there_are_several_and_the_user_chose_nothing():
    several = values(**TORCH, PET_NPROC_PER_NODE="2")
    assert environment_of(several)["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] == RANK_MARK_TEMPLATE
    assert environment_of(several)["PET_TEE"] == "3"
    assert "PET_TEE" not in environment_of(values(**TORCH, PET_NPROC_PER_NODE="1"))
    assert "PET_TEE" not in environment_of(values(**TORCH, PET_NPROC_PER_NODE="2", PET_REDIRECTS="3"))
    assert "PET_TEE" not in environment_of(several, environment={"PET_LOG_DIR": "/logs"})


def test_ranks_begin_where_the_pods_before_end():
    environment = environment_of(values(**TORCH, PET_NPROC_PER_NODE="4"))
    assert find_rank_base(environment, 4) == 4
    assert find_rank_base(environment, None) is None


def test_network_libraries_use_the_loopback_where_names_do_not_lead_there():
    assert environment_of({}, WITHOUT_NAMES)["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in environment_of({})
    chosen = environment_of({}, WITHOUT_NAMES, environment={"GLOO_SOCKET_IFNAME": "eth0"})
    assert chosen["GLOO_SOCKET_IFNAME"] == "eth0"


def test_pods_that_share_gpus_are_one_machine_to_nccl():
    assert environment_of({}, devices=("GPU-a",))["NCCL_HOSTID"] == "demo"
    assert "NCCL_HOSTID" not in environment_of({})


def test_rendezvous_hosts_are_found():
    found = find_rendezvous_hosts(
        {"PET_MASTER_ADDR": "a", "PET_RDZV_ENDPOINT": "b.c:1", "MASTER_ADDR": "::1"}
    )
    assert found == {"PET_MASTER_ADDR": "a", "PET_RDZV_ENDPOINT": "b.c", "MASTER_ADDR": "::1"}


def test_an_environment_that_is_active_comes_first_on_the_path():
    inherited = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/venv"}
    assert environment_of({}, environment=inherited)["PATH"] == "/venv/bin:/usr/bin"
    active = {"PATH": "/usr/bin:/venv/bin", "VIRTUAL_ENV": "/venv"}
    assert environment_of({}, environment=active)["PATH"] == "/usr/bin:/venv/bin"
