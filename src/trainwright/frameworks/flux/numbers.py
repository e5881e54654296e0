"""Hosts, tasks and resources of a job, in the words of Flux's programs (spec 02 section 9.3)."""

from __future__ import annotations

from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.resources import count_accelerators


def format_range(size: int, start: int = 0) -> str:
    """Return `size` numbers from `start` on as a set of Flux: `0`, `0-3`."""
    return str(start) if size == 1 else f"{start}-{start + size - 1}"


def build_host_prefix(job_name: str, pod_set_name: str) -> str:
    """Return what stands before the index in the host name of a pod."""
    return f"{job_name}-{pod_set_name}-0-"


def build_host_list(job_name: str, pod_set_name: str, nodes: int) -> str:
    """Return the host names of all nodes, in rank order, as one pattern: `demo-node-0-[0-3]`."""
    return f"{build_host_prefix(job_name, pod_set_name)}[{format_range(nodes)}]"


def count_nodes(trainer: PodSet) -> int:
    """Return the number of nodes; 1 for a job of none, whose scripts nobody runs."""
    return max(trainer.count, 1)


def count_tasks_per_node(layout: JobLayout) -> int:
    """Return the number of tasks on each node: the TrainJob's own, else the policy's, else 1."""
    policy = layout.policy.flux if layout.policy else None
    return layout.trainer.num_proc_per_node or (policy.num_proc_per_node if policy else None) or 1


def count_gpus(layout: JobLayout) -> int:
    """Return the number of accelerators of each node."""
    return count_accelerators(layout.trainer_resources, layout.accelerators)


def build_run_flags(nodes: int, tasks_per_node: int, gpus: int) -> str:
    """Return the size of the job for `flux run`; `gpus` are those of a node.

    Flux counts GPUs by task. Where they do not go round, tasks see all of them, and Flux gives out none.
    """
    flags = f"-N {nodes} -n {nodes * tasks_per_node}"
    per_task = gpus // tasks_per_node
    return f"{flags} -g {per_task}" if per_task else flags


def build_resource_spec(tasks_per_node: int, gpus: int) -> str:
    """Return the resources of a node for `flux R encode`: a core for each task, and the GPUs."""
    cores = f"--cores={format_range(tasks_per_node)}"
    return f"{cores} --gpu={format_range(gpus)}" if gpus else cores
