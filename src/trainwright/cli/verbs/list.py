"""`trainwright list`: the jobs, one a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.api.meta import ObjectKey
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.targets import Target


def list_jobs(
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List jobs with state, progress and age."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _list(target, None if all_namespaces else target.namespace, output))


async def _list(target: Target, namespace: str | None, output: OutputFormat) -> None:
    from trainwright.api.constants import TRAIN_JOB
    from trainwright.cli.console import say, write_data
    from trainwright.cli.reporting import print_objects, wants_table

    await target.settle()
    jobs = (await target.cluster.list(TRAIN_JOB, namespace)).items
    jobs.sort(key=lambda job: (job["metadata"].get("namespace", ""), job["metadata"]["name"]))
    if not wants_table(output):
        print_objects(jobs, output)
    elif not jobs:
        say("no TrainJobs" + (f" in namespace {namespace!r}" if namespace is not None else ""))
    else:
        from trainwright.api.encoding import parse_object
        from trainwright.api.trainjob import TrainJob
        from trainwright.cli.runtime_lookup import list_runtime_nodes

        train_jobs = [parse_object(job, TrainJob) for job in jobs]
        nodes = await list_runtime_nodes(target, namespace, train_jobs)
        is_wide = output is OutputFormat.WIDE
        write_data(_format_jobs(train_jobs, nodes, wide=is_wide, with_namespace=namespace is None))


def _format_jobs(
    train_jobs: list[TrainJob], nodes: dict[ObjectKey, int], *, wide: bool, with_namespace: bool
) -> str:
    from datetime import UTC, datetime

    from trainwright.cli.job_rows import HEADER, WIDE_HEADER, build_row, build_wide_row
    from trainwright.cli.tables import format_table

    now = datetime.now(UTC)
    build = build_wide_row if wide else build_row
    header: tuple[str, ...] = WIDE_HEADER if wide else HEADER
    rows: list[tuple[str, ...]] = [build(train_job, nodes, now) for train_job in train_jobs]
    if with_namespace:
        header = ("NAMESPACE", *header)
        rows = [
            (train_job.metadata.namespace or "", *row)
            for train_job, row in zip(train_jobs, rows, strict=True)
        ]
    return format_table(header, rows)
