"""`trainwright uninstall`: take the operator off a cluster; jobs stay unless their deletion is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.cluster_options import Apply, Context

if TYPE_CHECKING:
    from trainwright.cluster.kube.transport import Transport


def uninstall(
    *,
    apply: Apply = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of the operator. Default: where it is installed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    delete_jobs: Annotated[
        bool,
        typer.Option(
            "--delete-jobs",
            help="Delete all TrainJobs and runtimes of all users as well, and their kinds.",
        ),
    ] = False,
    context: Context = None,
) -> None:
    """Print what belongs to the operator on a cluster, or delete it.

    Prints a line for each object; with --apply they are deleted. TrainJobs, their pods, and runtimes that
    users made stay where they are, unless --delete-jobs is given. Nothing of others is touched.
    """
    from trainwright.cli.cluster_session import run_on_cluster
    from trainwright.cli.console import say, write_data
    from trainwright.operator.uninstall import find_namespace, plan_removal, remove

    async def work(transport: Transport) -> None:
        where = namespace or await find_namespace(transport)
        removal = await plan_removal(transport, where, delete_jobs=delete_jobs)
        for notice in removal.notices:
            say(notice)
        if removal.train_jobs:
            say(_describe_jobs(removal.train_jobs, removal.unfinished, delete_jobs=delete_jobs))
        if not removal.places:
            say("nothing of Trainwright is on this cluster")
        elif apply:
            await remove(transport, removal, say)
        else:
            write_data("\n".join(str(place) for place in removal.places))

    run_on_cluster(context, work)


def _describe_jobs(count: int, unfinished: int, *, delete_jobs: bool) -> str:
    jobs = f"{count} TrainJob{'s' if count != 1 else ''} ({unfinished} unfinished)"
    if delete_jobs:
        return f"{jobs} of all namespaces go too, with their pods"
    return (
        f"{jobs} stay: pods run on, but nobody writes their status until there is an operator again "
        "(--delete-jobs deletes them)"
    )
