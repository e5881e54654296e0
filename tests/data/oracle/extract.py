"""Take from a folder of recorded cases what the tests of admission need, in compact form.

    python tests/data/oracle/extract.py FOLDER

Writes <case>/input.yaml (the objects created first, as recorded) and <case>/requests.json: for each step the
requests, with what the peer, Kubeflow Trainer v2.3.0 on a real API server, answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

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
    "valid-",
    "xgboost-",
)


def build_steps(case: Path) -> list[dict[str, Any]]:
    """Return the steps: requests with their documents and answers, and which replicated jobs ran before."""
    recorded = json.loads((case / "expected.json").read_text())["steps"]
    files = [case / "input.yaml", *sorted(case.glob("step-*.yaml"))]
    steps: list[dict[str, Any]] = []
    active: dict[str, list[str]] = {}
    for i, (file, step) in enumerate(zip(files, recorded, strict=True)):
        documents = [
            document
            for document in yaml.safe_load_all(file.read_text())
            if document and document.get("action") not in {"pods", "wait", "finish"}
        ]
        steps.append(
            {
                "active": {name: jobs for name, jobs in active.items() if jobs},
                "requests": [_build_request(answer) for answer in step["requests"] if "code" in answer],
                # Those of the first step are in input.yaml.
                "documents": documents if i else None,
            }
        )
        for key, body in {**step.get("objects", {}), **step.get("changed", {})}.items():
            if key.startswith("JobSet/"):
                counters = body.get("status", {}).get("replicatedJobsStatus") or []
                active[key.removeprefix("JobSet/")] = [one["name"] for one in counters if one.get("active")]
    return steps


def _build_request(answer: dict[str, Any]) -> dict[str, Any]:
    request = {"do": answer["do"], "code": answer.get("code")}
    fields = [field for field in answer.get("fields", ()) if field != "<nil>"]
    return (
        request
        | ({"fields": fields} if fields else {})
        | ({"warnings": answer["warnings"]} if "warnings" in answer else {})
    )


def main(folder: Path) -> None:
    """Write the files of every case."""
    for case in sorted(folder.iterdir()):
        if not case.name.startswith(PREFIXES) or not case.is_dir():
            continue
        target = HERE / case.name
        target.mkdir(exist_ok=True)
        (target / "input.yaml").write_bytes((case / "input.yaml").read_bytes())
        text = json.dumps(build_steps(case), indent=1)
        (target / "requests.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
