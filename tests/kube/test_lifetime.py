"""Programs of tests end with the process that started them, also where nobody can end them in good order."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from kube.control_plane import ControlPlane
from kube.lifetime import DIE_WITH_PARENT

pytestmark = pytest.mark.skipif(not DIE_WITH_PARENT, reason="NOT TESTED: there is no setpriv")

SLEEP = Path(shutil.which("sleep") or "/bin/sleep")

# A process like a worker of pytest: it starts a component of a control plane from a thread that ends, says
# which, and goes on with its tests.
WORKER = """
import json, sys, threading, time
from pathlib import Path
from kube.control_plane import ControlPlane

plane = ControlPlane(Path(sys.argv[1]), folder=Path(sys.argv[2]))
starting = threading.Thread(target=plane.start_program, args=("sleep", "600"))
starting.start()
starting.join()
print(json.dumps(plane.pids), flush=True)
time.sleep(600)
"""


def test_a_killed_worker_takes_its_control_plane_with_it(tmp_path: Path) -> None:
    """1. A worker starts a program. 2. It is killed, and ends nothing. 3. The program is gone."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, SLEEP.parent, tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )
    try:
        assert worker.stdout is not None
        started = psutil.Process(json.loads(worker.stdout.readline())["sleep"])
    finally:
        worker.kill()
        worker.communicate()
    started.wait(30)


def test_a_program_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel ends a program with the thread that started it; threads of a test come and go."""
    plane = ControlPlane(SLEEP.parent, folder=tmp_path)
    asking = threading.Thread(target=plane.start_program, args=("sleep", "600"))
    asking.start()
    asking.join()
    try:
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(plane.pids["sleep"]).wait(0.2)
    finally:
        plane.stop_program("sleep")
