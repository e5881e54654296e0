"""Take from a folder of recorded cases the JobSets that the peer made, for the tests of render.

    python tests/data/oracle/extract_job_sets.py FOLDER

Writes <case>/jobset.json: for each step the JobSets, by name, that the TrainJobs of the case own and that
were made or changed in that step, without their status. `extract.py` writes the objects and requests that
led to them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PREFIXES = (
    "flux-",
    "gang-",
    "init-",
    "jax-",
    "life-",
    "mpi-",
    "patch-",
    "plain-",
    "torch-",
    "tune-",
    "xgboost-",
)
# Jobs that the peer renders and we refuse, and why.
LEFT_OUT = {
    "gang-both": "a pod has one scheduler, so two gang policies are refused",
    "jax-user-env": "variables that tell a process who it is are reserved",
    "mpi-other-container": "its containers would get neither keys nor hosts",
    "tune-runtime-nodes": "its model cannot be trained on two nodes",
}


def build_steps(case: Path) -> list[dict[str, Any]]:
    """Return the JobSets of each step that are not as they were in the step before.

    A step in which the case itself edits a JobSet has none: they are not what the peer made.
    """
    last: dict[str, Any] = {}
    steps = []
    files = [case / "input.yaml", *sorted(case.glob("step-*.yaml"))]
    recorded = json.loads((case / "expected.json").read_text())["steps"]
    for file, step in zip(files, recorded, strict=True):
        found: dict[str, Any] = {}
        if "kind: JobSet" in file.read_text():
            steps.append(found)
            continue
        for key, body in {**step.get("objects", {}), **step.get("changed", {})}.items():
            kind, _, name = key.partition("/")
            if kind != "JobSet" or not body["metadata"].get("ownerReferences"):
                continue
            job_set = {"apiVersion": body["apiVersion"], "kind": kind}
            job_set |= {"metadata": body["metadata"], "spec": body["spec"]}
            if job_set != last.get(name):
                last[name] = found[name] = job_set
        steps.append(found)
    return steps


def main(folder: Path) -> None:
    """Write the files of every case that has a JobSet."""
    for case in sorted(folder.iterdir()):
        if not case.name.startswith(PREFIXES) or not case.is_dir() or case.name in LEFT_OUT:
            continue
        steps = build_steps(case)
        if not any(steps):
            continue
        target = HERE / case.name
        target.mkdir(exist_ok=True)
        lines = ",\n".join(f" {json.dumps(step, sort_keys=True)}" for step in steps)
        (target / "jobset.json").write_text(f"[\n{lines}\n]\n")
        (target / "input.yaml").write_bytes((case / "input.yaml").read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
