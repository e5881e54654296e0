"""Leave a Kubernetes cluster running in the background, or end it: `make cluster`, `make cluster-stop`.

    scripts/cluster.py start PROGRAMS     PROGRAMS: the folder that scripts/cluster-programs prints
    scripts/cluster.py stop

`start` leaves one node with the operator of the working tree and the shipped runtimes, and prints the line
that makes kubectl and trainwright use it. Where one runs already it brings operator and runtimes up to date.
TRAINWRIGHT_TRAIN_ENV names the environment whose packages the pods see, as `scripts/environment train` prints
it; without it they have Python alone. Both may be called again at any time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kube.cluster import ClusterUnavailable, running_in_background, stop  # noqa: E402
from kube.development import install  # noqa: E402


def main() -> int:
    """Do what the command line says and return the exit code."""
    match sys.argv[1:]:
        case ["start", programs]:
            return _start(Path(programs))
        case ["stop"]:
            print("The cluster is gone." if stop() else "No cluster was running.", file=sys.stderr)
            return 0
    print(__doc__, file=sys.stderr)
    return 2


def _start(programs: Path) -> int:
    began = time.monotonic()
    chosen = os.environ.get("TRAINWRIGHT_TRAIN_ENV")
    try:
        with running_in_background(programs) as cluster:
            kubeconfig = Path(cluster.kubeconfig)
            install(kubeconfig, cluster.run_on_node, Path(chosen) if chosen else None)
    except ClusterUnavailable as error:
        print(f"No cluster to train on can be started here: {error}", file=sys.stderr)
        return 4
    print(f"Ready after {time.monotonic() - began:.0f} s; `make cluster-stop` ends it.", file=sys.stderr)
    print(f"export KUBECONFIG={kubeconfig}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
