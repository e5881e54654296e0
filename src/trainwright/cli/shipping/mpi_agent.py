"""What mpirun calls in place of ssh, so that ranks in other pods start in the code as well. Pure.

In an MPI runtime only the launcher runs the job's command; the other pods run sshd, whose command is not ours
to change. What they have is mounted: the archive, and an empty folder. So the code is unpacked where mpirun
arrives: its way to a host leads through the program below, which runs on the host what the launcher's own
container has run, and behind it what mpirun wanted there.

That takes no connection of its own. Where daemons start further daemons, as those of Open MPI do from 64
nodes on, each finds the program where it has just been unpacked, and 10,000 nodes unpack as fast as they
start.

Variables go the same way: sshd starts ranks without those of the pod, and Open MPI hands on none of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trainwright.api.constants import LAUNCHER, NODE
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.shipping.tree import Entry
from trainwright.errors import UsageError
from trainwright.template.replicated_jobs import find_named, get_pod_spec, list_replicated_jobs

AGENT_FOLDER: Final = "mpi"
_AGENT, _START = f"{AGENT_FOLDER}/agent", f"{AGENT_FOLDER}/start"
_FOLDER_MODE, _FILE_MODE, _PROGRAM_MODE = 0o755, 0o644, 0o755

# Where each implementation looks for its ssh: Open MPI 4 and 5, MPICH, Intel MPI.
_AGENT_VARIABLES: Final = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
_SHELL_NAME: Final = re.compile(r"(?!trainwright_)[A-Za-z_][A-Za-z0-9_]*")

# Called as ssh is: options, a host, and words that are joined to a line for the host's shell. Of the options
# those that take a value are known from ssh(1). Single quotes keep everything but themselves. What it sets
# before it reads the variables that it hands on is named as none of them is.
_AGENT_SCRIPT: Final = """\
#!/bin/sh
# mpirun calls this in place of ssh: what it starts on a host starts there in the code of the job.
trainwright_quote() {
  trainwright_rest=$1
  trainwright_quoted=
  while :; do
    case $trainwright_rest in
      *"'"*)
        trainwright_quoted="$trainwright_quoted${trainwright_rest%%"'"*}'\\''"
        trainwright_rest=${trainwright_rest#*"'"}
        ;;
      *) break ;;
    esac
  done
  trainwright_quoted="'$trainwright_quoted$trainwright_rest'"
}
trainwright_settings=
for trainwright_name in {names}; do
  eval "[ -n \\"\\${$trainwright_name+set}\\" ] && trainwright_quote \\"\\$$trainwright_name\\"" || continue
  trainwright_settings="$trainwright_settings $trainwright_name=$trainwright_quoted"
done
left=$#
host=
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  case $word in
    -[BbcDEeFIiJLlmOopQRSWw]) set -- "$@" "$word" "$1"; shift; left=$((left - 1)) ;;
    -*) set -- "$@" "$word" ;;
    *) host=$word; break ;;
  esac
done
line=
while [ "$left" -gt 0 ]; do
  line="${line:+$line }$1"
  shift
  left=$((left - 1))
done
trainwright_quote "$line"
exec ssh "$@" "$host" "env$trainwright_settings `cat {start}` sh -c $trainwright_quoted"
"""


def build_agent_exports(work: str) -> dict[str, str]:
    """Return the variables that make an mpirun, of whichever implementation, call our program."""
    return dict.fromkeys(_AGENT_VARIABLES, f"{work}/{_AGENT}")


def build_agent(start: Sequence[str], variables: Iterable[str], work: str) -> list[Entry]:
    """Return the program and its folder, for the archive that is unpacked into `work`.

    `start` are the words that go before a command so that it starts in the code. `variables` are the names of
    those that ranks get from the launcher; what a shell cannot name no shell can hand on.
    """
    names = " ".join(sorted({name for name in variables if _SHELL_NAME.fullmatch(name)}))
    script = _AGENT_SCRIPT.replace("{names}", names).replace("{start}", f"{work}/{_START}")
    return [
        Entry(path=AGENT_FOLDER, mode=_FOLDER_MODE),
        Entry(path=_AGENT, mode=_PROGRAM_MODE, content=script.encode()),
        Entry(path=_START, mode=_FILE_MODE, content=shlex.join(start).encode()),
    ]


def list_variables(train_job: TrainJob) -> list[str]:
    """Return the names of the variables of the job's trainer."""
    trainer = train_job.spec.trainer if train_job.spec else None
    return [entry["name"] for entry in (trainer.env if trainer else None) or ()]


def check_agent(train_job: TrainJob, runtime: Runtime) -> None:
    """Raise UsageError where hosts are to be reached by another program: it would bring no code."""
    template = runtime.spec.template if runtime.spec else None
    launcher = find_named(list_replicated_jobs(template.spec if template else None), LAUNCHER)
    container = find_named(get_pod_spec(launcher or {}).get("containers"), NODE) or {}
    said: Mapping[str, Iterable[str]] = {
        "the job": list_variables(train_job),
        f"runtime {runtime.metadata.name!r}": (entry["name"] for entry in container.get("env") or ()),
    }
    for who, names in said.items():
        if taken := sorted(set(names).intersection(_AGENT_VARIABLES)):
            raise UsageError(
                f"{who} sets {' and '.join(taken)}, by which mpirun brings the code to the other nodes; "
                "leave it out, or put the code into the image with --no-code"
            )
