"""How long does importing trainwright, and showing its help, take?

Data: a fresh interpreter each time, files in the page cache. Baseline: the same interpreter that imports
nothing. Bias: the cost of starting Python itself is in both, which flatters the ratio; the goal is therefore
on the difference.
"""

from __future__ import annotations

import subprocess
import sys

from measure import Figure, best_of, show


def measure() -> list[Figure]:
    """Time `import trainwright` and `trainwright --help` against a bare interpreter."""

    def start(*arguments: str) -> float:
        return best_of(
            9, lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        )

    bare = start("-c", "pass")
    return [
        Figure(
            name="`import trainwright`, beyond the interpreter",
            ours=max(start("-c", "import trainwright") - bare, 0.0),
            baseline_name="`python -c pass`",
            baseline=bare,
            limit=0.1,
        ),
        Figure(
            name="`trainwright --help`, whole command",
            ours=start("-m", "trainwright", "--help"),
            baseline_name="`python -c pass`",
            baseline=bare,
            limit=0.2,
        ),
    ]


if __name__ == "__main__":
    show(measure())
