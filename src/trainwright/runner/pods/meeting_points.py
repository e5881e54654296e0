"""Which ports of a job need another one on this machine, and which of its hosts one of their own. Pure.

On a cluster every pod has an address of its own, so all of a job can listen on the same port. Here they share
the addresses of one machine, and servers listen on all of them. Usually that is no matter, because all pods
meet at one: torchrun's store, JAX's coordinator, XGBoost's tracker. The tasks of a TensorFlow cluster and
PaddlePaddle's servers each listen, and say where in a list of HOST:PORT. So:

    the job names one host with the port    that host has the job's port
    it names several                        the first pod of the trainer step, else the first of those named,
                                            has the job's port, and each other one a port of its own

A port without a host (`PET_MASTER_PORT`) is always the job's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import TRAINER_PORT
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json
from trainwright.frameworks.tensorflow import PORT_NAME
from trainwright.runner.controllers.names import build_host_names, iterate_hosts
from trainwright.runner.executors.pod_env import list_names
from trainwright.runner.pods.training_nodes import is_trainer_step

_HOST_AND_PORT: Final = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]*):(\d+)")


def find_ports(job_set: JobSet) -> list[int]:
    """Return the ports at which processes of a job meet, as its pods name them."""
    named = (
        port["containerPort"]
        for container in _iterate_containers(job_set)
        for port in container.get("ports") or ()
        if port.get("name") == PORT_NAME
    )
    return sorted({TRAINER_PORT, *named})


def find_hosts_with_own_port(job_set: JobSet, subdomain: str, port: int) -> list[str]:
    """Return the host names of the pods that cannot have the job's port, in order."""
    hosts = build_host_names(job_set)
    by_name = {
        name: host
        for host in hosts
        for name in list_names(host, subdomain, job_set.metadata.namespace or "default")
    }
    found = {
        by_name.get(name)
        for text in _iterate_texts(job_set)
        for name, number in _HOST_AND_PORT.findall(text)
        if int(number) == port
    }
    named = [host for host in hosts if host in found]
    first = next((host for job, host in iterate_hosts(job_set) if is_trainer_step(job)), None)
    shares = first if first in named else next(iter(named), None)
    return [host for host in named if host != shares]


def _iterate_texts(job_set: JobSet) -> Iterator[str]:
    for container in _iterate_containers(job_set):
        yield from container.get("command") or ()
        yield from container.get("args") or ()
        for variable in container.get("env") or ():
            yield variable.get("value") or ""


def _iterate_containers(job_set: JobSet) -> Iterator[Json]:
    for replicated_job in job_set.spec.replicated_jobs:
        job = replicated_job.template.get("spec") or {}
        pod = (job.get("template") or {}).get("spec") or {}
        yield from pod.get("initContainers") or ()
        yield from pod.get("containers") or ()
