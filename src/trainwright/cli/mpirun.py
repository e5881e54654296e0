"""Which program starts the ranks of an MPI job's script: `run train.py` means the same for every runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainwright.api.runtime import Runtime
from trainwright.template.steps import has_launcher

_MPIRUN: Final = "mpirun"
# Intel's mpirun is a shell script that dies of SIGTERM without passing it on; what it starts passes it on.
_OTHERS: Final[Mapping[str, str]] = {"Intel": "mpiexec.hydra"}


def find_mpirun(runtime: Runtime) -> str | None:
    """Return the program that starts a script on all nodes, None where no launcher could run it.

    It takes no options: hosts and numbers of ranks are in its environment (spec 02 section 6.2).
    """
    if runtime.spec is None or runtime.spec.ml_policy is None or runtime.spec.ml_policy.mpi is None:
        return None
    template = runtime.spec.template
    if not has_launcher(template.spec if template else None):
        return None
    return _OTHERS.get(runtime.spec.ml_policy.mpi.mpi_implementation or "", _MPIRUN)
