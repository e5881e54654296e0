"""`trainwright wait`: until a job runs, or is complete."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.targets import Target


class Goal(StrEnum):
    """What can be waited for."""

    RUNNING = "running"
    COMPLETE = "complete"


def wait(
    name: JobName,
    *,
    goal: Annotated[Goal, typer.Option("--for", help="What to wait for.", show_default=False)],
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Give up after so long: 90, 90s, 15m, 1h30m.", show_default=False),
    ] = None,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Wait until a job runs or is complete.

    Exit code 1 if it fails instead, or the time is over.
    """
    from trainwright.cli.durations import parse_duration
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    seconds = None if timeout is None else parse_duration(timeout, "--timeout")
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _wait(target, target.namespace, name, (goal, seconds), output))


async def _wait(
    target: Target, namespace: str, name: str, until: tuple[Goal, int | None], output: OutputFormat
) -> None:
    import asyncio

    from trainwright.cli.durations import format_duration
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.reporting import report_change
    from trainwright.errors import UserError

    goal, seconds = until
    job = await get_train_job(target.cluster, namespace, name)
    try:
        async with asyncio.timeout(seconds):
            reached = await _wait_for(target, job, goal)
    except TimeoutError:
        job = await get_train_job(target.cluster, namespace, name)
        raise UserError(
            f"{name} is not {goal} after {format_duration(seconds or 0)}: it is {_describe(job)}"
        ) from None
    await report_change(target, namespace, name, f"is {reached}", output)


async def _wait_for(target: Target, job: TrainJob, goal: Goal) -> Goal:
    """Return what was reached; a job that is complete has run, and is waited for no more in either case."""
    from trainwright.api.meta import ObjectKey
    from trainwright.cli.job_rows import get_phase
    from trainwright.cli.verdict import JobFailed, format_failure
    from trainwright.cli.watching import watch_train_job
    from trainwright.errors import NotFound

    key = ObjectKey(job.kind, job.metadata.namespace or "", job.metadata.name)
    async for seen in watch_train_job(target, key):
        if seen is None:
            break
        phase = get_phase(seen)
        if phase == "Failed":
            raise JobFailed(f"{key.name} failed: {format_failure(seen)}")
        if phase == "Complete":
            return Goal.COMPLETE
        if goal is Goal.RUNNING and phase == "Running":
            return goal
    raise NotFound(job.kind, key.name, "it was deleted meanwhile")


def _describe(job: TrainJob) -> str:
    from datetime import UTC, datetime

    from trainwright.cli.job_rows import explain_untouched, get_phase
    from trainwright.cli.verdict import format_cause

    cause = job.status.cause if job.status else None
    untouched = explain_untouched(job, datetime.now(UTC))
    return get_phase(job) + (f"\n{format_cause(cause)}" if cause else f"\n{untouched}" if untouched else "")
