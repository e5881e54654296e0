"""Run the real program, in a state directory of its own without the settings of whoever runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_KEPT = ("HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
_SECONDS = 90.0


@dataclass
class Program:
    """`trainwright` for one test: `folder` is where it is called, `state` what it remembers."""

    folder: Path
    state: Path
    path: Sequence[str] = (str(Path(sys.executable).parent), "/usr/bin", "/bin")
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the program."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {
            **kept,
            "PATH": ":".join(self.path),
            "TRAINWRIGHT_STATE": str(self.state),
            "XDG_CONFIG_HOME": str(self.state.parent / "config"),
            **self.extra,
        }

    @property
    def command(self) -> list[str]:
        """How the program is started."""
        return [sys.executable, "-m", "trainwright"]

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it; the caller waits for it, or ends it."""
        return subprocess.Popen(
            [*self.command, *words],
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *words: str,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [*self.command, *words],
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def succeed(self, *words: str, stdin: str = "") -> str:
        """Run it, expect exit code 0 and return its stdout."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path
