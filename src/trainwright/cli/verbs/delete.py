"""`trainwright delete`: remove jobs with everything that belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.completion import complete_job_names
from trainwright.cli.options import Context, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target


def delete(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of TrainJobs.", metavar="NAME...", autocompletion=complete_job_names),
    ],
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete jobs with all that belongs to them.

    Ends their processes and removes output and history. Returns when no process is left.
    """
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _delete(target, target.namespace, names, output))


async def _delete(target: Target, namespace: str, names: list[str], output: OutputFormat) -> None:
    from trainwright.api.constants import TRAIN_JOB
    from trainwright.api.encoding import build_object
    from trainwright.api.meta import ObjectKey
    from trainwright.cli.console import say
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.reporting import print_object, wants_table

    # All names first: a slip in one of them deletes nothing.
    jobs = [await get_train_job(target.cluster, namespace, name) for name in dict.fromkeys(names)]
    for job in jobs:
        await target.cluster.delete(ObjectKey(TRAIN_JOB, namespace, job.metadata.name), job.metadata.uid)
    for job in jobs:
        await target.clean_up(job.metadata)
        if wants_table(output):
            say(f"{job.metadata.name} deleted")
        else:
            print_object(build_object(job), output)
