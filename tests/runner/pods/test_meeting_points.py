"""Who of a job needs which port."""

from __future__ import annotations

from typing import Any

import pytest

from runner.lab import replicated_job
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.runner.pods.meeting_points import find_hosts_with_own_port, find_ports

TWO = "demo-node-0-0.demo:29500,demo-node-0-1.demo:29500"


def build_job_set(*texts: str, **container: Any) -> JobSet:
    """Return a JobSet with a server and two training nodes, each of which has these variables."""
    jobs = [replicated_job("ps", "true"), replicated_job("node", "true", pods=2, step="trainer")]
    for job in jobs:
        (own,) = job["template"]["spec"]["template"]["spec"]["containers"]
        own |= {"env": [{"name": f"V{n}", "value": text} for n, text in enumerate(texts)], **container}
    return parse_object(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo", "namespace": "team"},
            "spec": {"replicatedJobs": jobs},
        },
        JobSet,
    )


HOSTS = {
    "none is named": ((), []),
    "the first node alone": (("demo-node-0-0.demo:29500",), []),
    "a server alone has the job's": (("tcp://demo-ps-0-0.demo:29500",), []),
    "all nodes": ((TWO,), ["demo-node-0-1"]),
    "the server too": ((f"{TWO},demo-ps-0-0.demo:29500",), ["demo-ps-0-0", "demo-node-0-1"]),
    "of two that are not the first the first": (
        ("demo-ps-0-0:29500 demo-node-0-1.demo.team.svc:29500",),
        ["demo-node-0-1"],
    ),
    "in two variables": (("demo-node-0-0:29500", "x=demo-node-0-1:29500"), ["demo-node-0-1"]),
    "another port is no matter": (("demo-node-0-0.demo:29500 demo-node-0-1.demo:29501",), []),
    "nor a longer one": (("demo-node-0-0.demo:29500 demo-node-0-1.demo:295000",), []),
    "nor another job's host": (("demo-node-0-0.demo:29500 demo-node-0-1.other:29500",), []),
}


@pytest.mark.parametrize(("texts", "expected"), HOSTS.values(), ids=HOSTS)
def test_hosts_that_are_named_beside_others_have_a_port_of_their_own(texts: Any, expected: Any) -> None:
    assert find_hosts_with_own_port(build_job_set(*texts), "demo", 29500) == expected


def test_hosts_are_also_named_in_arguments() -> None:
    job_set = build_job_set(command=["serve", "demo-node-0-1:29500"], args=["demo-node-0-0:29500"])
    assert find_hosts_with_own_port(job_set, "demo", 29500) == ["demo-node-0-1"]


PORTS = {
    "nothing is said": (None, [29500]),
    "the port of a TensorFlow task": ([{"name": "tfjob-port", "containerPort": 2222}], [2222, 29500]),
    "any other port": ([{"name": "http", "containerPort": 8080}, {"containerPort": 29500}], [29500]),
}


@pytest.mark.parametrize(("ports", "expected"), PORTS.values(), ids=PORTS)
def test_processes_meet_at_these_ports(ports: Any, expected: Any) -> None:
    assert find_ports(build_job_set(ports=ports)) == expected
