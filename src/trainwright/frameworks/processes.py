"""How many processes a launcher starts on each node, where the TrainJob may leave that to the resources.

Source: spec 02 sections 2.6 and 5.1.
"""

from __future__ import annotations

from typing import Final

from trainwright.template.layout import JobLayout
from trainwright.template.resources import AcceleratorNames, count_accelerators, count_cpus

_SLICES: Final = AcceleratorNames(substrings=("/mig-",))
# Accelerators that are no GPUs: Google's, Intel's, Amazon's, Huawei's and others.
_OTHERS: Final = AcceleratorNames(
    substrings=("/tpu", "/gaudi", "/neuron", "/ascend", "/npu", "/xpu", "/mlu", "/gcu", "/qaic"),
    shares=("mem", "percent"),
)


def compute_processes_per_node(layout: JobLayout) -> int | None:
    """Return the number of processes on each node; None where the launcher counts accelerators itself.

    The TrainJob's own number, else one for each accelerator, else one for each CPU, else 1. A launcher counts
    GPUs; it knows of none that the runtime names, and would start one process for each CPU of the machine.
    """
    if layout.trainer.num_proc_per_node is not None:
        return layout.trainer.num_proc_per_node
    if accelerators := count_accelerators(layout.trainer_resources, layout.accelerators):
        return accelerators if count_accelerators(layout.trainer_resources, _get_named(layout)) else None
    return count_cpus(layout.trainer_resources) or 1


def count_processes_per_node(layout: JobLayout) -> int:
    """Return the number of processes on each node, with those counted that a launcher would count itself."""
    processes = compute_processes_per_node(layout)
    return (
        count_accelerators(layout.trainer_resources, layout.accelerators) if processes is None else processes
    )


def list_process_warnings(layout: JobLayout) -> list[str]:
    """Return where accelerators would stay idle or be shared, or could not be counted."""
    if layout.trainer_pod_set is None:
        return []
    uncounted = list_uncounted_warnings(layout) if layout.trainer.num_proc_per_node is None else []
    return [*_list_slice_warnings(layout), *(uncounted or _list_count_warnings(layout))]


def list_uncounted_warnings(layout: JobLayout) -> list[str]:
    """Return which devices of a node do not tell how many processes it has, although they might."""
    resources, accelerators = layout.trainer_resources, layout.accelerators
    remedy = "set spec.trainer.numProcPerNode"
    warnings = [
        f"each node asks for {name}, which does not tell how many processes it has; {remedy}, or let the "
        "runtime name it in spec.mlPolicy.accelerators"
        for name in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        if not accelerators.match(name) and _OTHERS.match(name)
    ]
    if resources.get("claims") and not count_accelerators(resources, accelerators):
        warnings.append(
            f"each node asks for devices by claims, which do not tell how many processes it has; {remedy}"
        )
    return warnings


def _get_named(layout: JobLayout) -> AcceleratorNames:
    return AcceleratorNames(substrings=(), names=layout.accelerators.names)


def _list_slice_warnings(layout: JobLayout) -> list[str]:
    """Return a warning where a node has several slices of GPUs: CUDA shows a process only the first."""
    slices = count_accelerators(layout.trainer_resources, _SLICES)
    if slices < 2:
        return []
    return [
        f"each node asks for {slices} slices of GPUs (nvidia.com/mig-*), and CUDA shows a process no more "
        "than one: ask for one on each node and for more nodes, or set CUDA_VISIBLE_DEVICES in each process"
    ]


def _list_count_warnings(layout: JobLayout) -> list[str]:
    chosen = layout.trainer.num_proc_per_node
    accelerators = count_accelerators(layout.trainer_resources, layout.accelerators)
    if chosen is not None and accelerators > chosen:
        return [
            f"spec.trainer.numProcPerNode is {chosen}, but each node asks for {accelerators} "
            f"accelerators: {accelerators - chosen} of them may stay idle"
        ]
    if chosen is not None and 0 < accelerators < chosen:
        return [
            f"spec.trainer.numProcPerNode is {chosen}, but each node asks for {accelerators} "
            f"accelerator(s) only: processes would have to share them"
        ]
    if chosen is None and not accelerators and not count_cpus(layout.trainer_resources):
        return [
            "neither the runtime nor spec.trainer.resourcesPerNode asks for CPUs or accelerators: "
            "each node runs one process; set spec.trainer.numProcPerNode or resourcesPerNode for more"
        ]
    return []
