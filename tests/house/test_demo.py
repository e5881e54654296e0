"""`make demo`: what a newcomer sees first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_demo_trains_and_leaves_a_checkpoint_and_a_picture(training_environment: Path, tmp_path: Path):
    command = tmp_path / "trainwright"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trainwright "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{training_environment / 'bin'}:{os.environ['PATH']}",
        "TRAINWRIGHT": str(command),
        "TRAINWRIGHT_STATE": str(tmp_path / "state"),
        "DEMO_DIR": str(tmp_path / "output"),
    }
    ran = subprocess.run(
        ["bash", ROOT / "examples/digits/demo.sh"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    # The script itself ends with 1 below 95 % of the test images.
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert "accuracy:" in ran.stdout
    assert (tmp_path / "output/digits.pt").stat().st_size > 1000
    assert (tmp_path / "output/digits.png").read_bytes().startswith(b"\x89PNG")
