"""Take from a folder of recorded cases the PodGroups that the peer made, for the tests of gang scheduling.

    python tests/data/oracle/extract_pod_groups.py FOLDER

Writes <case>/podgroup.json: the PodGroups after the first step, by name of the TrainJob that owns them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ("PodGroup/", "VolcanoPodGroup/")


def main(folder: Path) -> None:
    """Write the file of every case that has a PodGroup, but for those with two for one job."""
    for case in sorted(folder.iterdir()):
        objects = json.loads((case / "expected.json").read_text())["steps"][0].get("objects", {})
        groups = [(key.partition("/")[2], body) for key, body in objects.items() if key.startswith(KINDS)]
        if not groups or len(dict(groups)) < len(groups):
            continue
        found = {
            name: {
                "apiVersion": body["apiVersion"],
                "kind": "PodGroup",
                "metadata": body["metadata"],
                "spec": body["spec"],
            }
            for name, body in groups
        }
        text = json.dumps(found, indent=1, sort_keys=True)
        (HERE / case.name / "podgroup.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
