"""`trainwright get`: one job in full, with a picture of its metrics if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target


def get(
    name: JobName,
    *,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the reported metrics into a PNG file.", show_default=False
        ),
    ] = None,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one job: state, progress, metrics and cause."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _get(target, target.namespace, name, plot, output))


async def _get(target: Target, namespace: str, name: str, plot: str | None, output: OutputFormat) -> None:
    from datetime import UTC, datetime
    from pathlib import Path

    from trainwright.api.encoding import parse_object
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.console import say, write_data
    from trainwright.cli.finding import get_train_job_json
    from trainwright.cli.job_card import format_card
    from trainwright.cli.plot import write_plot
    from trainwright.cli.reporting import print_object, wants_table
    from trainwright.cli.runtime_lookup import list_runtime_nodes
    from trainwright.cli.verdict import format_outcome

    await target.settle()
    body = await get_train_job_json(target.cluster, namespace, name)
    train_job = parse_object(body, TrainJob)
    now = datetime.now(UTC)
    reports = target.read_reports(train_job.metadata)
    if plot is not None:
        write_plot(Path(plot), reports, name, format_outcome(train_job, now))
        say(f"metrics of {name} are drawn in {plot}")
    if wants_table(output):
        nodes = await list_runtime_nodes(target, namespace, [train_job])
        write_data(format_card(train_job, nodes, reports, now, wide=output is OutputFormat.WIDE))
    else:
        print_object(body, output)
