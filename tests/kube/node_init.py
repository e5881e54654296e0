"""The first process of a node: makes its mounts, and then only reaps. Everything on the node dies with it.

Started by `namespaces.py` in namespaces of its own (mount, PID, network, host name, IPC), where it is PID 1.
In: one JSON argument. Out: the line `ready`. Uses the standard library alone: nothing of ours is on its path.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Set up, say so, and reap orphans until killed."""
    plan = json.loads(sys.argv[1])
    socket.sethostname(plan["hostname"])
    # Pods pass mounts on to each other, but nothing comes out: `/` was made a slave of the machine's.
    _mount("--make-rshared", "/")
    for folder in plan["empty"]:
        _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", folder)
    for source, target in plan["binds"]:
        Path(target).mkdir(parents=True, exist_ok=True)  # the last cluster before may just have taken it away
        _mount("--bind", source, target)
    for number, (path, content) in enumerate(plan["files"]):
        _replace(number, Path(path), content)
    print("ready", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _replace(number: int, path: Path, content: str) -> None:
    """Put another file in the place of one of the machine, for this node alone."""
    resolved = path.resolve()
    if not resolved.exists():  # a link into a folder that is empty here, as to systemd's resolv.conf
        resolved.parent.mkdir(parents=True, exist_ok=True)
        resolved.touch()
    stand_in = Path(f"/run/stand-in-{number}")
    stand_in.write_text(content)
    _mount("--bind", str(stand_in), str(resolved))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()
