"""Write the CRDs below src/trainwright/manifests/crds from the structs of `trainwright.api`.

    python scripts/generate_crds.py [--check]

The parts that are JobSet's own come from the CRD in JobSet's Go module, at the version of
tests/kube/programs/jobset; needs Go. With --check nothing is written: exit status 1 says that a file is not
what it should be.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from trainwright.api.crds import build_crds
from trainwright.api.writing import build_yaml

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/trainwright/manifests/crds"
MODULE = "sigs.k8s.io/jobset"
CRD = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"


def generate() -> dict[Path, str]:
    """Return the content of each file."""
    program = ROOT / "tests/kube/programs/jobset"
    subprocess.run(["go", "mod", "download", MODULE], cwd=program, check=True)
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE],
        cwd=program,
        check=True,
        capture_output=True,
        text=True,
    )
    job_set = yaml.safe_load((Path(listed.stdout.strip()) / CRD).read_text())
    schema = job_set["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {
        TARGET / f"{crd['spec']['names']['plural']}.yaml": build_yaml([crd]) for crd in build_crds(schema)
    }


def main(arguments: list[str]) -> int:
    """Write or check every file."""
    wrong = [path for path, text in generate().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/generate_crds.py", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in generate().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
