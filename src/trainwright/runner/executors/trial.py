"""Finds out by trying how well the processes of a pod can be kept apart on this machine.

Nothing but trying tells: user namespaces are limited by sysctls, by AppArmor (Ubuntu lets `unshare` succeed
and then refuses every mount), by seccomp filters of container engines, and a new /proc is refused where the
old one is masked. So a whole container is run, with a root of its own.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainwright.errors import UsageError
from trainwright.runner.executors.channel import ContainerChannel, ContainerSetup
from trainwright.runner.executors.isolation import PROCESSES, Isolation
from trainwright.runner.executors.mount_plan import Mount, build_mount_operations

ISOLATION_ENV: Final = "TRAINWRIGHT_ISOLATION"
_TRIAL_SECONDS: Final = 10.0
# From the best to the one that is always to be had. Root tries without a user namespace first: inside one it
# would lose what it may do outside.
_CANDIDATES_ROOT: Final = (
    Isolation(mount=True, pid=True),
    Isolation(mount=True, user=True, pid=True),
    Isolation(mount=True),
    Isolation(mount=True, user=True),
)
_CANDIDATES_USER: Final = tuple(candidate for candidate in _CANDIDATES_ROOT if candidate.user)


async def choose_isolation(environment: Mapping[str, str], uid: int) -> Isolation:
    """Return the best isolation that works here; TRAINWRIGHT_ISOLATION=auto|namespaces|processes has the
    last word.

    Raises UsageError for another value, and where namespaces are asked for and not to be had.
    """
    wanted = environment.get(ISOLATION_ENV, "auto")
    if wanted not in ("auto", "namespaces", "processes"):
        raise UsageError(f"{ISOLATION_ENV}={wanted!r}: use auto, namespaces or processes")
    if wanted == "processes" or sys.platform != "linux":
        found, refusal = PROCESSES, "they exist on Linux only"
    else:
        found, refusal = await try_namespaces(uid)
    if wanted == "namespaces" and not found.mount:
        raise UsageError(
            f"{ISOLATION_ENV}=namespaces, but this machine gives us none ({refusal}); "
            f"allow user namespaces or set {ISOLATION_ENV}=auto"
        )
    return found


async def try_namespaces(uid: int) -> tuple[Isolation, str]:
    """Return the best isolation that a trial container could have, and why the ones before it failed."""
    refusals: list[str] = []
    for candidate in _CANDIDATES_ROOT if uid == 0 else _CANDIDATES_USER:
        refusal = await _try_isolation(candidate)
        if refusal is None:
            return candidate, "; ".join(refusals)
        refusals.append(refusal)
    return PROCESSES, "; ".join(dict.fromkeys(refusals))


async def _try_isolation(isolation: Isolation) -> str | None:
    """Run `true` in such a container; return what went wrong."""
    with tempfile.TemporaryDirectory(prefix="tw-trial-") as folder:
        # At a place that does not exist, so that a root has to be built and pivoted to.
        layout = build_mount_operations([Mount(source=None, target="/.trainwright-trial")], Path(folder))
        setup = ContainerSetup(
            isolation=isolation,
            argv=("true",),
            environment={"PATH": "/usr/bin:/bin"},
            working_directory="/",
            host_name="trainwright-trial",
            layout=layout,
        )
        channel = ContainerChannel.open(setup)
        try:
            async with asyncio.timeout(_TRIAL_SECONDS):
                outcome = await channel.wait()
        except TimeoutError:
            return "no answer from a trial container"
        finally:
            await channel.kill()
    return outcome.start_error
