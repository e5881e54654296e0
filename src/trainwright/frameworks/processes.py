"""How many processes a launcher starts on each node, where the TrainJob may leave that to the resources.

Source: spec 02 sections 2.6 and 5.1.
"""

from __future__ import annotations

from typing import Final

from trainwright.template.layout import JobLayout
from trainwright.template.resources import AcceleratorNames, count_accelerators, count_cpus

_SLICES: Final = AcceleratorNames(substrings=("/mig-",))


def compute_processes_per_node(layout: JobLayout) -> int | None:
    """Return the number of processes on each node; None where the launcher counts accelerators itself.

    The TrainJob's own number, else None where nodes have accelerators, else one for each CPU, else 1.
    """
    if layout.trainer.num_proc_per_node is not None:
        return layout.trainer.num_proc_per_node
    if count_accelerators(layout.trainer_resources, layout.accelerators):
        return None
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
    return [*_list_slice_warnings(layout), *_list_count_warnings(layout)]


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
