"""The two programs of the pods: texts of the package, after the numbers and names of a job.

Nothing that a user wrote becomes part of a program. Names and settings are assigned to variables, as quoted
words; the command is what it is in other frameworks: words of the container's own command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from trainwright.frameworks.flux.broker import PORT, build_broker_config, build_default_bind
from trainwright.frameworks.flux.numbers import (
    build_host_list,
    build_host_prefix,
    build_resource_spec,
    build_run_flags,
    count_gpus,
    count_nodes,
    count_tasks_per_node,
)
from trainwright.frameworks.flux.settings import Settings
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet

INIT_SCRIPT: Final = "init.sh"
ENTRYPOINT_SCRIPT: Final = "entrypoint.sh"


def build_scripts(layout: JobLayout, trainer: PodSet, settings: Settings) -> dict[str, str]:
    """Return file name -> text of the script of the init container, and of that of the trainer container."""
    nodes, tasks, gpus = count_nodes(trainer), count_tasks_per_node(layout), count_gpus(layout)
    hosts = build_host_list(layout.job_name, trainer.name, nodes)
    prefix = build_host_prefix(layout.job_name, trainer.name)
    init = {
        "hosts": hosts,
        "host_prefix": prefix,
        "broker_config": build_broker_config(hosts, layout.subdomain, settings),
        "default_bind": build_default_bind(settings),
        "default_port": str(PORT),
    }
    entrypoint = {
        "hosts": hosts,
        "lead": f"{prefix}0",
        "run_flags": build_run_flags(nodes, tasks, gpus),
        "resources": build_resource_spec(tasks, gpus),
    }
    return {
        ENTRYPOINT_SCRIPT: _build_script(entrypoint, ENTRYPOINT_SCRIPT),
        INIT_SCRIPT: _build_script(init, INIT_SCRIPT),
    }


def _build_script(variables: Mapping[str, str], name: str) -> str:
    assignments = "".join(f"{variable}={shlex.quote(value)}\n" for variable, value in variables.items())
    return f"#!/bin/sh\n{assignments}\n{_read_body(name)}"


@cache
def _read_body(name: str) -> str:
    return (resources.files(__package__) / "scripts" / name).read_text(encoding="utf-8")
