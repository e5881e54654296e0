"""Which framework a runtime chooses: one of those that are shipped, or one of another package, by name."""

from __future__ import annotations

from trainwright.api.runtime import FRAMEWORK_CHOICES, MLPolicy

CUSTOM = "custom"


def is_chosen(policy: MLPolicy | None, name: str) -> bool:
    """Say whether a runtime with this policy chooses the framework of another package that has this name.

    What such a framework answers to `is_active`: `mlPolicy: {custom: {framework: NAME}}`.
    """
    return policy is not None and policy.custom is not None and policy.custom.framework == name


def list_shipped_choices(policy: MLPolicy | None) -> list[str]:
    """Return the shipped frameworks that a policy chooses; several only where admission never saw it."""
    return [
        choice
        for choice in FRAMEWORK_CHOICES
        if choice != CUSTOM and policy is not None and getattr(policy, choice) is not None
    ]
