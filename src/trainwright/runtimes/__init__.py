"""The runtimes that come with the package, as YAML files beside this module.

A file is named like its runtime. They are what `trainwright install` puts on a cluster, and what a TrainJob
on one machine may name without anything being installed.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from trainwright.api.encoding import parse_object
from trainwright.api.runtime import ClusterTrainingRuntime

__all__ = ["load_shipped_runtimes"]


def load_shipped_runtimes() -> dict[str, ClusterTrainingRuntime]:
    """Return the shipped runtimes by name, in the order of their names; a new dict with each call."""
    return dict(_load())


@cache
def _load() -> dict[str, ClusterTrainingRuntime]:
    import yaml  # costs more than the rest of this module; most commands never load a runtime

    files = sorted(
        (entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".yaml")),
        key=lambda entry: entry.name,
    )
    loaded = (
        parse_object(yaml.safe_load(entry.read_text(encoding="utf-8")), ClusterTrainingRuntime)
        for entry in files
    )
    return {runtime.metadata.name: runtime for runtime in loaded}
