"""Hosts, tasks and resources, after the case list of spec 02 section 16.9 (numbers in the names)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworks.flux.builders import flux_layout, flux_runtime
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import RuntimeSpec
from trainwright.frameworks.flux.numbers import (
    build_host_list,
    build_resource_spec,
    build_run_flags,
    count_gpus,
    count_tasks_per_node,
    format_range,
)

RANGES = {
    "7: one from 0": ((1, 0), "0"),
    "8: four from 0": ((4, 0), "0-3"),
    "9: three from 10": ((3, 10), "10-12"),
}


@pytest.mark.parametrize(("arguments", "expected"), RANGES.values(), ids=RANGES)
def test_range(arguments: tuple[int, int], expected: str) -> None:
    assert format_range(*arguments) == expected


HOSTS = {
    "10: one node": (("lammps-job", "node", 1), "lammps-job-node-0-[0]"),
    "11: four nodes": (("flux-cluster", "node", 4), "flux-cluster-node-0-[0-3]"),
    "12: no name": (("", "node", 2), "-node-0-[0-1]"),
}


@pytest.mark.parametrize(("arguments", "expected"), HOSTS.values(), ids=HOSTS)
def test_hosts(arguments: tuple[str, str, int], expected: str) -> None:
    assert build_host_list(*arguments) == expected


def expand(pattern: str) -> list[str]:
    """Return what a host list of one bracket means. Source: Flux RFC 29."""
    found = re.fullmatch(r"(.*)\[(\d+)(?:-(\d+))?\]", pattern)
    assert found is not None
    prefix, first, last = found.groups()
    return [f"{prefix}{index}" for index in range(int(first), int(last or first) + 1)]


@given(
    nodes=st.integers(1, 10_000), job=st.sampled_from(["a", "job-0-1"]), step=st.sampled_from(["node", "w"])
)
def test_hosts_are_every_pod_exactly_once_in_rank_order(nodes: int, job: str, step: str) -> None:
    layout = flux_layout(flux_runtime(num_nodes=nodes, name=step), name=job)
    assert layout.trainer_pod_set is not None
    endpoints = layout.iterate_endpoints(layout.trainer_pod_set)
    assert expand(build_host_list(job, step, nodes)) == [endpoint.partition(".")[0] for endpoint in endpoints]


# Nodes, tasks and GPUs of each -> flags of `flux run`.
FLAGS = {
    "one task": ((1, 1, 0), "-N 1 -n 1"),
    "tasks are those of all nodes": ((4, 8, 0), "-N 4 -n 32"),
    "a GPU for each task": ((2, 4, 4), "-N 2 -n 8 -g 1"),
    "GPUs are by task": ((2, 2, 4), "-N 2 -n 4 -g 2"),
    "what does not go round stays idle": ((1, 2, 5), "-N 1 -n 2 -g 2"),
    "fewer GPUs than tasks": ((1, 4, 2), "-N 1 -n 4"),
}


@pytest.mark.parametrize(("arguments", "expected"), FLAGS.values(), ids=FLAGS)
def test_flags_of_run(arguments: tuple[int, int, int], expected: str) -> None:
    assert build_run_flags(*arguments) == expected


@given(nodes=st.integers(1, 1000), tasks=st.integers(1, 64), gpus=st.integers(0, 64))
def test_a_node_never_has_to_give_more_gpus_than_it_has(nodes: int, tasks: int, gpus: int) -> None:
    found = re.fullmatch(rf"-N {nodes} -n {nodes * tasks}(?: -g (\d+))?", build_run_flags(nodes, tasks, gpus))
    assert found is not None
    assert int(found[1] or 0) * tasks <= gpus


RESOURCES = {
    "one task": ((1, 0), "--cores=0"),
    "a core for each task": ((4, 0), "--cores=0-3"),
    "all GPUs": ((2, 8), "--cores=0-1 --gpu=0-7"),
    "one GPU": ((1, 1), "--cores=0 --gpu=0"),
}


@pytest.mark.parametrize(("arguments", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_resources(arguments: tuple[int, int], expected: str) -> None:
    assert build_resource_spec(*arguments) == expected


TASKS: dict[str, tuple[RuntimeSpec, dict[str, Any], int]] = {
    "one": (flux_runtime(), {}, 1),
    "the policy's": (flux_runtime(tasks=2), {}, 2),
    "the job's own": (flux_runtime(tasks=2), {"num_proc_per_node": 3}, 3),
}


@pytest.mark.parametrize(("spec", "trainer", "expected"), TASKS.values(), ids=TASKS)
def test_tasks_on_each_node(spec: RuntimeSpec, trainer: dict[str, Any], expected: int) -> None:
    assert count_tasks_per_node(flux_layout(spec, **trainer)) == expected


def test_gpus_are_those_of_the_merged_resources() -> None:
    spec = flux_runtime({"name": "node", "resources": {"limits": {"nvidia.com/gpu": 4}}})
    layout = flux_layout(spec, resources_per_node=ResourceRequirements(limits={"cpu": "8"}))
    assert count_gpus(layout) == 4
