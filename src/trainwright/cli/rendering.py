"""The children of admitted TrainJobs."""

from __future__ import annotations

from urllib.parse import urlsplit

from trainwright.api.meta import Json
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import Admitted
from trainwright.cli.manifests import InvalidManifests
from trainwright.errors import UsageError
from trainwright.plugins import load_frameworks
from trainwright.render import ProgressServer, RenderError, render


def parse_progress_server(url: str) -> ProgressServer:
    """Return the server of `https://host[:port]`, whose certificates nobody here knows. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"--progress-server: {url!r} is not https://HOST:PORT")
    return ProgressServer(url=f"https://{parts.netloc}")


def render_admitted(admitted: Admitted, progress: ProgressServer | None = None) -> list[Json]:
    """Return the objects that the TrainJobs become, in the order of the files. Raises InvalidManifests.

    `progress` is where an operator takes reports, None where it does not.
    """
    children: list[Json] = []
    mistakes: list[str] = []
    for item in admitted.objects:
        if not isinstance(item.value, TrainJob) or item.runtime is None:
            continue
        try:
            children += render(item.value, item.runtime, frameworks=load_frameworks(), progress=progress)
        except RenderError as error:
            mistakes.append(f"{item.source}: TrainJob {item.value.metadata.name!r}: {error}")
    if mistakes:
        raise InvalidManifests(mistakes)
    return children
