"""The runtimes that come with the package, as YAML files beside this module.

A file is named like its runtime. They are what `trainwright install` puts on a cluster, and what a TrainJob
on one machine may name without anything being installed. A job needs one of them: each is read when it is
asked for (all of them take 60 ms, most of what a command may cost).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final

from trainwright.api.encoding import parse_object
from trainwright.api.runtime import ClusterTrainingRuntime

__all__ = [
    "DESCRIPTION_ANNOTATION",
    "RUNTIME_VERSION_ANNOTATION",
    "ShippedRuntimes",
    "load_shipped_runtimes",
]

# What a runtime is for, in a line; Kubernetes' own annotation for that.
DESCRIPTION_ANNOTATION: Final = "kubernetes.io/description"
# Counts the changes of a shipped runtime, whatever the version of the program.
RUNTIME_VERSION_ANNOTATION: Final = "trainer.kubeflow.org/runtime-version"

_SUFFIX: Final = ".yaml"


class ShippedRuntimes(Mapping[str, ClusterTrainingRuntime]):
    """The shipped runtimes by name, in the order of their names. Asking for names reads no file."""

    def __getitem__(self, name: str) -> ClusterTrainingRuntime:
        if name not in _list_names():
            raise KeyError(name)
        return _load(name)

    def __contains__(self, name: object) -> bool:
        return name in _list_names()

    def __iter__(self) -> Iterator[str]:
        return iter(_list_names())

    def __len__(self) -> int:
        return len(_list_names())


def load_shipped_runtimes() -> ShippedRuntimes:
    """Return the shipped runtimes; nothing of them is read yet."""
    return ShippedRuntimes()


@cache
def _list_names() -> tuple[str, ...]:
    entries = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX)))


@cache
def _load(name: str) -> ClusterTrainingRuntime:
    import yaml  # costs more than the rest of this module; most commands never load a runtime

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (resources.files(__name__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return parse_object(yaml.load(text, loader), ClusterTrainingRuntime)  # noqa: S506 (a SafeLoader)
