"""The children of admitted TrainJobs."""

from __future__ import annotations

from trainwright.api.meta import Json
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import Admitted
from trainwright.cli.manifests import InvalidManifests
from trainwright.plugins import load_frameworks
from trainwright.render import RenderError, render


def render_admitted(admitted: Admitted) -> list[Json]:
    """Return the objects that the TrainJobs become, in the order of the files. Raises InvalidManifests."""
    children: list[Json] = []
    mistakes: list[str] = []
    for item in admitted.objects:
        if not isinstance(item.value, TrainJob) or item.runtime is None:
            continue
        try:
            children += render(item.value, item.runtime, frameworks=load_frameworks())
        except RenderError as error:
            mistakes.append(f"{item.source}: TrainJob {item.value.metadata.name!r}: {error}")
    if mistakes:
        raise InvalidManifests(mistakes)
    return children
