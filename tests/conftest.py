"""What every test may use: where training runs, and the profiles of hypothesis."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def training_environment() -> Path:
    """The Python environment that training scripts run in: its `bin` has python and torchrun.

    `make test` names it in TRAINWRIGHT_TRAIN_ENV and makes it where needed.
    """
    chosen = os.environ.get("TRAINWRIGHT_TRAIN_ENV")
    if not chosen:
        pytest.skip(
            "NOT TESTED: no training environment; `make test` sets TRAINWRIGHT_TRAIN_ENV and installs it"
        )
    python = Path(chosen) / "bin" / "python"
    subprocess.run([python, "-c", "import torch, sklearn"], check=True, timeout=120)
    return Path(chosen)
