"""`trainwright.progress` as a training script has it: a process of its own, up to its very end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import trainwright
from progress.scripted_server import ScriptedServer, run_scripted_server

SOURCE = Path(trainwright.__file__).parent.parent


def build_environment(url: str, token: Path) -> dict[str, str]:
    token.write_text("secret")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCE),
        "KUBEFLOW_TRAINER_SERVER_URL": url,
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
        "TRAINWRIGHT_PROGRESS_INTERVAL_SECONDS": "3600",  # nothing leaves because time has passed
    }


def run_script(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def run_against(
    server: ScriptedServer, script: str, tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_script, script, build_environment(server.url, tmp_path / "token"))


LOOP = """
from trainwright.progress import report
for step in range(1, 101):
    report(step=step, total=100, metrics={"loss": 1 / step})
"""


async def test_the_last_report_of_a_script_arrives_although_it_came_right_after_another(tmp_path: Path):
    async with run_scripted_server() as server:
        result = await run_against(server, LOOP, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert server.statuses[-1] == {
        "progressPercentage": 100,
        "estimatedRemainingSeconds": 0,
        "metrics": [{"name": "step", "value": "100"}, {"name": "loss", "value": "0.01"}],
    }
    assert len(server.requests) <= 2


async def test_the_last_report_of_a_script_that_fails_arrives(tmp_path: Path):
    async with run_scripted_server() as server:
        result = await run_against(server, LOOP + "raise SystemExit(7)", tmp_path)
    assert result.returncode == 7
    assert server.statuses[-1]["progressPercentage"] == 100


# Registered first, it runs last: after what is sent at exit.
TIMED = """
import atexit, time
atexit.register(lambda: print(time.monotonic() - began))
from trainwright.progress.endpoint import Endpoint  # loading http and ssl may take long on a busy machine
began = time.monotonic()
"""


def test_a_server_that_is_not_there_costs_one_line_and_no_time(tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else may listen there meanwhile
        port = closed.getsockname()[1]
        environment = build_environment(f"http://127.0.0.1:{port}/status", tmp_path / "token")
        result = run_script(TIMED + LOOP, environment)
    assert float(result.stdout) < 5.0
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("a progress report was not delivered: ConnectionRefusedError")


def test_a_server_that_says_nothing_does_not_keep_a_script_from_ending(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/status"
        result = run_script(TIMED + LOOP, build_environment(url, tmp_path / "token"))
    assert result.returncode == 0
    assert 1.9 < float(result.stdout) < 5.0


FORK = """
import os
from trainwright.progress import flush, report
report(step=1, total=4)
assert flush(60.0)
report(step=2, total=4)
if os.fork() == 0:
    report(metrics={"child": 1}) if os.environ.get("CHILD_REPORTS") else None
    raise SystemExit(0)
os.wait()
report(step=3, total=4)
"""


async def test_a_forked_process_does_not_repeat_the_reports_of_its_parent(tmp_path: Path):
    async with run_scripted_server() as server:
        result = await run_against(server, FORK, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert [status["progressPercentage"] for status in server.statuses] == [25, 75]


async def test_a_forked_process_can_report_itself(tmp_path: Path):
    async with run_scripted_server() as server:
        result = await run_against(server, 'import os\nos.environ["CHILD_REPORTS"] = "1"\n' + FORK, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert server.statuses[1] == {"metrics": [{"name": "child", "value": "1"}]}


def test_outside_a_train_job_neither_http_nor_threads_are_loaded(tmp_path: Path):
    script = LOOP + (
        "import sys, threading\n"
        "assert threading.active_count() == 1\n"
        "assert not {'ssl', 'http.client', 'json', 'logging', 'msgspec'} & set(sys.modules), sys.modules\n"
    )
    result = run_script(
        script, {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "PYTHONNOUSERSITE": "1"}
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_what_the_package_exports_is_what_it_says():
    from trainwright import progress

    public = {name for name, value in vars(progress).items() if not name.startswith("_") and callable(value)}
    assert public - {"Reporter"} == set(progress.__all__)
