"""`trainwright logs`: what the ranks of a job printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.targets import LogRequest, Target


def logs(
    name: JobName,
    *,
    rank: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="R",
            help="Only this rank of torchrun, else this training node, as on a cluster. Default: all.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on until the job ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only the last N lines of each rank.", show_default=False),
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the containers before they were restarted.")
    ] = False,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print what the ranks of a job printed.

    Each line has its rank in front, unless --rank names one; -o json prints a JSON object a line.
    """
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import LogRequest, Where
    from trainwright.errors import UsageError

    if output not in {OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.JSON}:
        raise UsageError(f"logs are text or JSON lines: use `-o table` or `-o json`, not {str(output)!r}")
    if follow and previous:
        raise UsageError("--previous is of containers that have ended: leave out --follow")
    request = LogRequest(rank=rank, follow=follow, tail=tail, previous=previous)
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _logs(target, target.namespace, name, request, output))


# What mpirun starts prints through mpirun.
_MIXED = (
    "the output of {name} is that of all its ranks together: leave out --rank. mpirun can mark whose a line "
    "is: --tag-output with Open MPI 4, --output tag with 5, -prepend-rank with MPICH and Intel MPI"
)


async def _logs(target: Target, namespace: str, name: str, request: LogRequest, output: OutputFormat) -> None:
    from trainwright.api.encoding import build_json
    from trainwright.cli.console import say, write_data
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.log_lines import format_log_line
    from trainwright.cli.printing import encode_line

    job = await get_train_job(target.cluster, namespace, name)
    has_output = False
    async for line in target.read_logs(job, request, say):
        has_output = True
        if output is OutputFormat.JSON:
            write_data(encode_line(build_json(line)))
        else:
            write_data(format_log_line(line, with_source=request.rank is None))
    if not has_output and request.tail != 0:
        await _explain_silence(target, job, request)


async def _explain_silence(target: Target, job: TrainJob, request: LogRequest) -> None:
    from trainwright.cli.console import say
    from trainwright.cli.job_rows import get_phase, is_finished
    from trainwright.cli.target_names import TargetName
    from trainwright.errors import NotFound

    rank, name = request.rank, job.metadata.name
    is_cluster = target.name is TargetName.KUBERNETES
    seen = await target.list_ranks(job.metadata)
    ranks = sorted({*seen, *range(_count_nodes(job) if is_cluster else _count_processes(job))})
    if rank is not None and seen and rank not in ranks:
        raise NotFound("Rank", str(rank), f"{name} has ranks {', '.join(map(str, ranks))}")
    if rank is not None and not seen and await _has_output(target, job):
        raise NotFound("Rank", str(rank), _MIXED.format(name=name))
    if is_cluster and not seen and is_finished(job):
        say(f"no pod of {name} is left, nor what it printed; the job is {get_phase(job)}")
    elif request.previous:
        say(f"no container of {name} was restarted in its pod")
    elif rank is not None:
        say(f"rank {rank} of {name} has printed nothing; the job is {get_phase(job)}")
    else:
        say(f"{name} is {get_phase(job)} and has printed nothing")


def _count_nodes(job: TrainJob) -> int:
    """Return how many training nodes the job itself asks for; 0 where it leaves that to its runtime."""
    trainer = job.spec.trainer if job.spec else None
    return (trainer.num_nodes or 0) if trainer else 0


def _count_processes(job: TrainJob) -> int:
    """Return how many processes the job itself asks for; 0 where it leaves that to its runtime."""
    trainer = job.spec.trainer if job.spec else None
    return _count_nodes(job) * ((trainer.num_proc_per_node or 0) if trainer else 0)


async def _has_output(target: Target, job: TrainJob) -> bool:
    from trainwright.cli.console import say
    from trainwright.cli.targets import LogRequest

    async for _ in target.read_logs(job, LogRequest(tail=1), say):
        return True
    return False
