"""Programs that live no longer than the process that started them, however that ends.

A test run that is interrupted or killed ends nothing itself: its API servers would go on, with their ports
and a core. The kernel ends them (PR_SET_PDEATHSIG). It does so when the *thread* ends that started them, so
all are started by one that lives as long as the process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

# Put before a command. Where there is no setpriv, as on a Mac, programs outlive a run that is killed.
DEATH_SIGNAL = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()

# The same for a program that this process starts itself. One that has lost us before it asked for the signal
# never gets it, and does not begin.
_BEGIN = ("sh", "-c", 'test "$PPID" = "$0" && exec "$@"', str(os.getpid()))
DIE_WITH_PARENT = (*DEATH_SIGNAL, *_BEGIN) if DEATH_SIGNAL else ()

_STARTER = ThreadPoolExecutor(1, "starter-of-programs")


def start_in_background(command: Sequence[str | Path], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that reads nothing; where it begins with DIE_WITH_PARENT it ends with this process."""
    started = _STARTER.submit(
        subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    return started.result()
