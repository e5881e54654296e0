"""`trainwright validate`: are these files right? Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Context, Files, Kubeconfig, Live, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.manifests import Manifests
    from trainwright.cli.targets import AdmissionSource


def validate(
    files: Files,
    *,
    live: Live = False,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check files: print every mistake, change nothing.

    The runtime of a TrainJob is looked for in the same files, then among the shipped ones;
    on this machine, and with --live on a cluster, also among the installed ones.
    """
    from trainwright.cli.manifests import read_manifests
    from trainwright.cli.session import check_offline, run_on_target
    from trainwright.cli.targets import Where

    manifests = read_manifests(files)
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run = run_on_target if live else check_offline
    run(where, lambda target: _validate(target, manifests, target.namespace, output))


async def _validate(
    target: AdmissionSource, manifests: Manifests, namespace: str, output: OutputFormat
) -> None:
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
