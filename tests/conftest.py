"""What every test may use: where training runs, the profiles of hypothesis, and who runs which tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


class ClusterScheduling(LoadScopeScheduling):
    """Lets one worker run all tests that share a cluster, so that it is started once; others go to any.

    The folder tests/kube has a cluster, and so has each folder in it. (Marks would say the same, but
    pytest-xdist 3.8 does not see its groups under pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        folder, _, _ = nodeid.partition("::")[0].rpartition("/")
        return folder if f"{folder}/".startswith("tests/kube/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return ClusterScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


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
    # Looked for, not imported: that takes many seconds, and on a busy machine minutes.
    look = "from importlib.util import find_spec; assert find_spec('torch') and find_spec('sklearn')"
    subprocess.run([python, "-c", look], check=True, timeout=120)
    return Path(chosen)
