"""Run every benchmark (or those named) and print one table; exit status 1 when a goal is missed.

python benchmarks/run.py [NAME ...]      NAME: import, launch, render ...
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measure import Figure, format_table  # noqa: E402


def main(names: list[str]) -> int:
    """Run the benchmarks one after the other."""
    modules = [f"bench_{name}" for name in names] or sorted(p.stem for p in HERE.glob("bench_*.py"))
    figures: list[Figure] = []
    for module in modules:
        print(f"running {module} ...", file=sys.stderr)
        figures += importlib.import_module(module).measure()
    print(format_table(figures))
    load = os.getloadavg()[0]
    print(
        f"\nPython {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the end. "
        "Compare ratios, not seconds.",
    )
    return 0 if all(figure.is_within_limit for figure in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
