"""What a list shows of a runtime. Pure."""

from __future__ import annotations

from trainwright.api.constants import FRAMEWORK_LABEL, SUPPORT_DEPRECATED, SUPPORT_LABEL
from trainwright.api.runtime import MLPolicy
from trainwright.cli.runtime_lookup import KnownRuntime
from trainwright.frameworks.choice import list_shipped_choices
from trainwright.runtimes import DESCRIPTION_ANNOTATION, RUNTIME_VERSION_ANNOTATION

HEADER = ("NAME", "FRAMEWORK", "NODES", "FROM", "DESCRIPTION")
WIDE_HEADER = ("NAME", "KIND", "FRAMEWORK", "NODES", "FROM", "VERSION", "STEPS", "DEPRECATED", "DESCRIPTION")


def build_row(entry: KnownRuntime) -> tuple[str, ...]:
    """Return the cells of HEADER."""
    meta, spec = entry.runtime.metadata, entry.runtime.spec
    policy = spec.ml_policy if spec else None
    return (
        meta.name,
        (meta.labels or {}).get(FRAMEWORK_LABEL) or name_framework(policy),
        str(policy.num_nodes if policy and policy.num_nodes is not None else 1),
        str(entry.origin),
        (meta.annotations or {}).get(DESCRIPTION_ANNOTATION) or "-",
    )


def build_wide_row(entry: KnownRuntime) -> tuple[str, ...]:
    """Return the cells of WIDE_HEADER."""
    meta, spec = entry.runtime.metadata, entry.runtime.spec
    template = (spec.template.spec if spec and spec.template else None) or {}
    steps = [str(job.get("name", "?")) for job in template.get("replicatedJobs") or ()]
    deprecated = (meta.labels or {}).get(SUPPORT_LABEL) == SUPPORT_DEPRECATED
    name, framework, nodes, origin, description = build_row(entry)
    version = (meta.annotations or {}).get(RUNTIME_VERSION_ANNOTATION) or "-"
    return (
        *(name, entry.runtime.kind, framework, nodes, origin, version),
        *(",".join(steps) or "-", "yes" if deprecated else "no", description),
    )


def name_framework(policy: MLPolicy | None) -> str:
    """Return how processes find each other: `torch`, ..., the name of a custom framework, or `plain`."""
    if policy is not None and policy.custom is not None:
        return policy.custom.framework
    return next(iter(list_shipped_choices(policy)), "plain")
