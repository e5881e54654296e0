"""`trainwright render`: what TrainJobs become. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Files, Namespace, ObjectsFormat, ObjectsOutput, On

if TYPE_CHECKING:
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import Target


def render(
    files: Files,
    on: On = None,
    namespace: Namespace = "default",
    output: ObjectsOutput = ObjectsFormat.YAML,
) -> None:
    """Print the objects that TrainJobs become; change nothing.

    The runtime of a TrainJob is looked for in the same files, then among the installed ones, then among the
    shipped ones.
    -o yaml prints YAML documents, -o json a list.
    """
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.session import run_on_target

    manifests = read_manifests(files)
    run_on_target(on, lambda target: _render(target, manifests, namespace, output))


async def _render(target: Target, manifests: Manifests, namespace: str, output: ObjectsFormat) -> None:
    from trainwright.cli.admitting import admit_manifests
    from trainwright.cli.console import warn, write_data
    from trainwright.cli.printing import format_documents, format_json, format_name
    from trainwright.cli.rendering import render_admitted

    admitted = await admit_manifests(target, manifests, namespace)
    for warning in admitted.warnings:
        warn(warning)
    children = render_admitted(admitted)
    if output is ObjectsFormat.JSON:
        write_data(format_json(children))
    elif output is ObjectsFormat.NAME:
        write_data("".join(f"{format_name(child)}\n" for child in children))
    else:
        write_data(format_documents(children))
