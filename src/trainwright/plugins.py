"""Frameworks of other packages: found where Python keeps what installed packages offer.

A package offers one by an entry point in the group `trainwright.frameworks`, whose name is that of the
framework, and which leads to a `frameworks.contract.Framework`, or to a class that makes one without
arguments. Looking for them reads the metadata of every installed package, and loading runs code of others:
the pure core gets them as an argument, and only what admits or renders jobs asks for them.

A package that cannot be loaded, or wants a name that is taken, stops whoever asks. Leaving it out would
refuse its jobs with the wrong reason.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainwright.api.runtime import FRAMEWORK_CHOICES
from trainwright.errors import UserError
from trainwright.frameworks import FRAMEWORKS, Framework

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "trainwright.frameworks"

_SHIPPED: Final = frozenset({*FRAMEWORK_CHOICES, *(framework.name for framework in FRAMEWORKS)})
_FUNCTIONS: Final = ("is_active", "validate", "list_warnings", "build_contribution")


class UnusableFramework(UserError):
    """A framework that an installed package offers cannot be used; names the package."""

    def __init__(self, entry_point: EntryPoint, problem: str) -> None:
        self.package = name_package(entry_point)
        super().__init__(
            f"package {self.package} offers a framework {entry_point.name!r} (entry point "
            f"{entry_point.value!r} in the group {GROUP}), but {problem}; upgrade the package or uninstall it"
        )


@cache
def load_frameworks() -> tuple[Framework, ...]:
    """Return the shipped frameworks and those of installed packages. Raises UnusableFramework.

    Packages are looked up once in the life of a process.
    """
    if not has_offers(sys.path):
        return FRAMEWORKS
    from importlib.metadata import entry_points

    return add_frameworks(FRAMEWORKS, entry_points(group=GROUP))


def has_offers(search_path: Iterable[str]) -> bool:
    """Say whether there may be a package below the search path of Python that offers a framework.

    Almost always there is none, and then the machinery for reading packages, whose import alone takes 12 ms
    (as long as a tenth of `trainwright render`), is not needed. An archive on the path is left to it.
    """
    return any(
        Path(entry).is_file()
        or any(GROUP.encode() in text for text in _read_entry_points(entry or os.curdir))
        for entry in search_path
    )


def _read_entry_points(folder: str) -> Iterator[bytes]:
    try:
        packages = [entry for entry in Path(folder).iterdir() if entry.suffix in {".dist-info", ".egg-info"}]
    except OSError:
        return
    for package in packages:
        with contextlib.suppress(OSError):
            yield (package / "entry_points.txt").read_bytes()


def add_frameworks(shipped: tuple[Framework, ...], offered: Iterable[EntryPoint]) -> tuple[Framework, ...]:
    """Return the shipped frameworks, then those that entry points lead to, by name.

    Raises UnusableFramework.
    """
    loaded: dict[str, EntryPoint] = {}
    found: list[Framework] = []
    for entry_point in sorted(offered, key=lambda offer: (offer.name, name_package(offer), offer.value)):
        if entry_point.name in _SHIPPED:
            raise UnusableFramework(entry_point, "that name is one of ours")
        if (other := loaded.get(entry_point.name)) is not None:
            raise UnusableFramework(
                entry_point, f"package {name_package(other)} offers one of that name as well"
            )
        loaded[entry_point.name] = entry_point
        found.append(_load(entry_point))
    return (*shipped, *found)


def name_package(entry_point: EntryPoint) -> str:
    """Return name and version of the package that an entry point is of."""
    package = entry_point.dist
    return f"{package.name} {package.version}" if package is not None else "(unknown)"


def _load(entry_point: EntryPoint) -> Framework:
    try:
        offered: Any = entry_point.load()
        framework = offered() if isinstance(offered, type) else offered
    except Exception as error:  # whatever the code of somebody else does
        problem = f"loading it failed with {type(error).__name__}: {error}"
        raise UnusableFramework(entry_point, problem) from error
    lacking = [name for name in _FUNCTIONS if not callable(getattr(framework, name, None))]
    if lacking:
        raise UnusableFramework(entry_point, f"what it leads to has no {', '.join(lacking)}")
    if (own_name := getattr(framework, "name", None)) != entry_point.name:
        raise UnusableFramework(entry_point, f"what it leads to has the name {own_name!r}")
    checked: Framework = framework
    return checked
