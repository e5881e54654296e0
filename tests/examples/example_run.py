"""Examples as a user runs them: their own files, through the command line, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.program import Program

EXAMPLES = Path(__file__).parents[2] / "examples"
_HEAVY = ("DEEPSPEED", "PADDLE", "TENSORFLOW", "TORCHTUNE")
# A bound, not an expectation: what an example does in seconds takes long beside other tests on two cores.
PATIENCE_SECONDS = 200


class ExampleRun:
    """Applies the files of one example, and tells what became of their jobs."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(self, program: Program, folder: Path, environments: Sequence[Path]) -> None:
        self.folder = folder
        self.environment = environments[0]
        self.volumes = program.state / "volumes" / "default"
        self.checkpoints = program.state.parent / "checkpoints"
        self._program = program
        program.folder = folder
        program.path = (*(str(environment / "bin") for environment in environments), "/usr/bin", "/bin")
        program.extra |= {"CHECKPOINT_DIR": str(self.checkpoints)}

    def apply(self, file: str = "trainjob.yaml", **changes: Any) -> str:
        """Apply a file as it is, or with these fields of `spec.trainer` and this `name`; return the job's."""
        documents = list(yaml.safe_load_all((self.folder / file).read_text()))
        (job,) = (document for document in documents if document["kind"] == "TrainJob")
        if changes:
            job["metadata"]["name"] = changes.pop("name", job["metadata"]["name"])
            job["spec"]["trainer"] |= changes
            self._program.succeed("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
        else:
            self._program.succeed("apply", "-f", file)
        return job["metadata"]["name"]

    def finish(self, name: str) -> str:
        """Wait until the job is complete, and return what its pods printed."""
        seconds = self.patience_seconds
        words = ("wait", name, "--for", "complete", "--timeout", f"{seconds}s")
        done = self._program.run(*words, seconds=seconds + 30)
        logs = self.read_logs(name)
        assert done.returncode == 0, f"{done.stderr}\n{self._program.run('explain', name).stdout}\n{logs}"
        return logs

    def read_logs(self, name: str, *words: str) -> str:
        """Return what the job's pods have printed."""
        return self._program.succeed("logs", name, *words)

    def read_metrics(self, name: str) -> dict[str, float]:
        """Return progress and metrics from the job's status."""
        status = json.loads(self._program.succeed("get", name, "-o", "json"))["status"]["trainerStatus"]
        metrics = {metric["name"]: float(metric["value"]) for metric in status["metrics"]}
        return {**metrics, "percent": status["progressPercentage"]}

    def follow_until(self, name: str, pattern: str) -> None:
        """Read the output as it comes until a line has the pattern in it."""
        following = self._program.start("logs", name, "--follow")
        assert following.stdout is not None
        try:
            seen = []
            for line in following.stdout:
                seen.append(line)
                if re.search(pattern, line):
                    return
            raise AssertionError(f"no line has {pattern!r}:\n{''.join(seen)}")
        finally:
            following.kill()
            following.communicate()

    def call(self, *words: str) -> str:
        """Run another command."""
        return self._program.succeed(*words)

    def try_to(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command, which may fail."""
        return self._program.run(*words)

    def python(self, code: str) -> str:
        """Run code in the environment of the training, in the example's folder."""
        return subprocess.check_output(
            [self.environment / "bin" / "python", "-c", code], cwd=self.folder, text=True, timeout=120
        )


def find_environment(name: str) -> Path:
    """Return the environment of this name that `make` has installed for the tests; skips, loudly."""
    variable = f"TRAINWRIGHT_{name}_ENV"
    chosen = os.environ.get(variable)
    if not chosen:
        goal = "make test-full" if name in _HEAVY else "make test"
        pytest.skip(f"NOT TESTED: `{goal}` sets {variable} and installs it where it can")
    return Path(chosen)
