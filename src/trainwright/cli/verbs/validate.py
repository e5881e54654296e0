"""`trainwright validate`: are these files right? Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Files, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import Target


def validate(
    files: Files,
    on: On = None,
    namespace: Namespace = "default",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check files: print every mistake, change nothing.

    The runtime of a TrainJob is looked for in the same files, then among the installed ones, then among the
    shipped ones.
    """
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.session import run_on_target

    manifests = read_manifests(files)
    run_on_target(on, lambda target: _validate(target, manifests, namespace, output))


async def _validate(target: Target, manifests: Manifests, namespace: str, output: OutputFormat) -> None:
    from trainwright.cli.admitting import admit_manifests
    from trainwright.cli.console import say, warn
    from trainwright.cli.printing import format_name
    from trainwright.cli.reporting import print_objects, wants_table

    admitted = await admit_manifests(target, manifests, namespace)
    for warning in admitted.warnings:
        warn(warning)
    bodies = [item.body for item in admitted.objects]
    if not wants_table(output):
        print_objects(bodies, output)
    else:
        for item in admitted.objects:
            say(f"{item.source}: {format_name(item.body)} is valid")
