"""Take the lives of jobs from a folder of recorded cases, in compact form.

    python tests/control/oracle/extract.py FOLDER

Writes <case>.yaml: `steps`, each with its `documents` (objects to create, or actions) and the `statuses` that
the TrainJobs had after it with the peer, Kubeflow Trainer v2.3.0, on a real API server. A TrainJob that a
step did not change is left out there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

# Its ConfigMap and Secret belong to the MPI framework, not to the life of a job.
LEFT_OUT = "life-children-deleted"

HERE = Path(__file__).resolve().parent


def build_status(train_job: dict[str, Any]) -> dict[str, Any]:
    """Return conditions and counters, each on one line."""
    status = train_job.get("status", {})
    return {
        "conditions": [
            [c["type"], c["status"], c["reason"], c["message"]] for c in status.get("conditions", ())
        ],
        "counters": {
            s["name"]: [s[key] for key in ("ready", "succeeded", "failed", "active", "suspended")]
            for s in status.get("jobsStatus", ())
        },
    }


def main(folder: Path) -> None:
    """Write the file of every case."""
    for case in sorted(folder.glob("life-*")):
        if case.name == LEFT_OUT:
            continue
        files = [case / "input.yaml", *sorted(case.glob("step-*.yaml"))]
        recorded = json.loads((case / "expected.json").read_text())["steps"]
        steps = [
            {
                "documents": [document for document in yaml.safe_load_all(file.read_text()) if document],
                "statuses": {
                    key.removeprefix("TrainJob/"): build_status(body)
                    for key, body in {**step.get("objects", {}), **step.get("changed", {})}.items()
                    if key.startswith("TrainJob/")
                },
            }
            for file, step in zip(files, recorded, strict=True)
        ]
        title = files[0].read_text().splitlines()[0].removeprefix("# ")
        text = yaml.safe_dump(
            {"title": title, "steps": steps}, sort_keys=False, width=110, default_flow_style=None
        )
        (HERE / f"{case.name}.yaml").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
