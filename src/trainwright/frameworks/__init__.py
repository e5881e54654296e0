"""One module per way in which processes find each other: its rules for admission and what it adds to pods.

Stands below admission and render, which both walk the one registry here, or a longer one that they are given
(`trainwright.plugins`). `contract` says what a framework is.
"""

from trainwright.frameworks.choice import is_chosen
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    Framework,
    GeneratedSecret,
    PodAddition,
)
from trainwright.frameworks.registry import (
    FRAMEWORKS,
    find_unsupported,
    list_framework_warnings,
    select_frameworks,
    validate_frameworks,
)

__all__ = [
    "FRAMEWORKS",
    "ContainerAddition",
    "Contribution",
    "Framework",
    "GeneratedSecret",
    "PodAddition",
    "find_unsupported",
    "is_chosen",
    "list_framework_warnings",
    "select_frameworks",
    "validate_frameworks",
]
