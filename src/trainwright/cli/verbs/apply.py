"""`trainwright apply`: make the objects of files be there, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Files, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import Target


def apply(
    files: Files,
    on: On = None,
    namespace: Namespace = "default",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create or update the objects of files.

    All are checked first; if one of them is refused, none is written.
    """
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.session import run_on_target

    manifests = read_manifests(files)
    run_on_target(on, lambda target: _apply(target, manifests, namespace, output))


async def _apply(target: Target, manifests: Manifests, namespace: str, output: OutputFormat) -> None:
    from trainwright.cli.admitting import admit_manifests
    from trainwright.cli.applying import apply_admitted
    from trainwright.cli.console import say, warn
    from trainwright.cli.printing import format_name
    from trainwright.cli.reporting import print_objects, wants_table

    admitted = await admit_manifests(target, manifests, namespace)
    for warning in admitted.warnings:
        warn(warning)
    written = []
    async for done in apply_admitted(target, admitted):
        written.append(done.body)
        if wants_table(output):
            say(f"{format_name(done.body)} {done.outcome}")
            for notice in done.notices:
                say(notice)
    if not wants_table(output):
        print_objects(written, output)
