"""`trainwright render`: what TrainJobs become. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import (
    Context,
    Files,
    Kubeconfig,
    Live,
    Namespace,
    ObjectsFormat,
    ObjectsOutput,
    On,
)

if TYPE_CHECKING:
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import AdmissionSource
    from trainwright.render import ProgressServer


def render(
    files: Files,
    *,
    live: Live = False,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: ObjectsOutput = ObjectsFormat.YAML,
    progress_server: Annotated[
        str | None,
        typer.Option(
            "--progress-server",
            help="Render as an operator with the gate TrainJobStatus does, which takes reports there.",
            metavar="URL",
        ),
    ] = None,
) -> None:
    """Print the objects that TrainJobs become; change nothing.

    The runtime of a TrainJob is looked for in the same files, then among the shipped ones;
    on this machine, and with --live on a cluster, also among the installed ones.
    -o yaml prints YAML documents, -o json a list.
    """
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.rendering import parse_progress_server
    from trainwright.cli.session import check_offline, run_on_target
    from trainwright.cli.targets import Where

    progress = parse_progress_server(progress_server) if progress_server is not None else None
    manifests = read_manifests(files)
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run = run_on_target if live else check_offline
    run(where, lambda target: _render(target, manifests, output, progress))


async def _render(
    target: AdmissionSource, manifests: Manifests, output: ObjectsFormat, progress: ProgressServer | None
) -> None:
    from trainwright.cli.admitting import admit_manifests
    from trainwright.cli.console import warn, write_data
    from trainwright.cli.printing import format_documents, format_json, format_name
    from trainwright.cli.rendering import render_admitted

    admitted = await admit_manifests(target, manifests, target.namespace)
    for warning in admitted.warnings:
        warn(warning)
    children = render_admitted(admitted, progress)
    if output is ObjectsFormat.JSON:
        write_data(format_json(children))
    elif output is ObjectsFormat.NAME:
        write_data("".join(f"{format_name(child)}\n" for child in children))
    else:
        write_data(format_documents(children))
