"""`trainwright apply`: make the objects of files be there, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, Files, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.applying import Ownership
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import Target


def apply(
    files: Files,
    *,
    field_manager: Annotated[
        str, typer.Option(metavar="NAME", help="Whose fields those are that the files set.")
    ] = "trainwright",
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that others set on the cluster.")
    ] = False,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create or update the objects of files.

    All are checked first, on a cluster by the cluster too; if one of them is refused, none is written.
    """
    from trainwright.cli.applying import Ownership
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    manifests = read_manifests(files)
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    ownership = Ownership(manager=field_manager, force=force_conflicts)
    run_on_target(where, lambda target: _apply(target, manifests, ownership, output))


async def _apply(target: Target, manifests: Manifests, ownership: Ownership, output: OutputFormat) -> None:
    from trainwright.cli.admitting import admit_manifests
    from trainwright.cli.applying import apply_admitted, try_on_target
    from trainwright.cli.console import say, warn
    from trainwright.cli.printing import format_name
    from trainwright.cli.reporting import print_objects, wants_table

    admitted = await admit_manifests(target, manifests, target.namespace)
    for warning in admitted.warnings:
        warn(warning)
    await try_on_target(target, admitted, ownership)
    written = []
    async for done in apply_admitted(target, admitted, ownership):
        written.append(done.body)
        if wants_table(output):
            say(f"{format_name(done.body)} {done.outcome}")
            for notice in done.notices:
                say(notice)
    if not wants_table(output):
        print_objects(written, output)
