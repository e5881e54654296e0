"""What a list shows of a runtime. Pure."""

from __future__ import annotations

from trainwright.api.constants import FRAMEWORK_LABEL, SUPPORT_DEPRECATED, SUPPORT_LABEL
from trainwright.api.runtime import MLPolicy
from trainwright.cli.runtime_lookup import KnownRuntime

HEADER = ("NAME", "KIND", "FRAMEWORK", "NODES", "FROM")
WIDE_HEADER = (*HEADER, "STEPS", "DEPRECATED")

_FRAMEWORKS = ("torch", "mpi", "jax", "xgboost", "flux")


def build_row(entry: KnownRuntime) -> tuple[str, ...]:
    """Return the cells of HEADER."""
    meta, spec = entry.runtime.metadata, entry.runtime.spec
    policy = spec.ml_policy if spec else None
    return (
        meta.name,
        entry.runtime.kind,
        (meta.labels or {}).get(FRAMEWORK_LABEL) or name_framework(policy),
        str(policy.num_nodes if policy and policy.num_nodes is not None else 1),
        str(entry.origin),
    )


def build_wide_row(entry: KnownRuntime) -> tuple[str, ...]:
    """Return the cells of WIDE_HEADER."""
    meta, spec = entry.runtime.metadata, entry.runtime.spec
    template = (spec.template.spec if spec and spec.template else None) or {}
    steps = [str(job.get("name", "?")) for job in template.get("replicatedJobs") or ()]
    deprecated = (meta.labels or {}).get(SUPPORT_LABEL) == SUPPORT_DEPRECATED
    return (*build_row(entry), ",".join(steps) or "-", "yes" if deprecated else "no")


def name_framework(policy: MLPolicy | None) -> str:
    """Return how processes find each other: `torch`, ..., or `plain`."""
    return next((name for name in _FRAMEWORKS if policy and getattr(policy, name) is not None), "plain")
