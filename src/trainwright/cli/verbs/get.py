"""`trainwright get`: one job in full, with a picture of its metrics if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import JobName, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target
    from trainwright.runner.progress_history import HistoryEntry


def get(
    name: JobName,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw the reported metrics into a PNG file.", show_default=False
        ),
    ] = None,
    on: On = None,
    namespace: Namespace = "default",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one job: state, progress, metrics and cause."""
    from trainwright.cli.session import run_on_target

    run_on_target(on, lambda target: _get(target, namespace, name, plot, output))


async def _get(target: Target, namespace: str, name: str, plot: str | None, output: OutputFormat) -> None:
    from datetime import UTC, datetime

    from trainwright.api.encoding import parse_object
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.console import say, write_data
    from trainwright.cli.finding import get_train_job_json
    from trainwright.cli.job_card import format_card
    from trainwright.cli.reporting import print_object, wants_table
    from trainwright.cli.runtime_lookup import list_runtime_nodes

    await target.settle()
    body = await get_train_job_json(target.cluster, namespace, name)
    train_job = parse_object(body, TrainJob)
    reports = target.read_reports(train_job.metadata)
    if plot is not None:
        _draw(name, reports, plot)
        say(f"metrics of {name} drawn to {plot}")
    if wants_table(output):
        nodes = await list_runtime_nodes(target.cluster)
        write_data(
            format_card(train_job, nodes, reports, datetime.now(UTC), wide=output is OutputFormat.WIDE)
        )
    else:
        print_object(body, output)


def _draw(name: str, reports: list[HistoryEntry], file: str) -> None:
    raise NotImplementedError
