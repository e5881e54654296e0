"""`trainwright suspend`, `resume`, `scale`: change what a job should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target


def suspend(
    name: JobName,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Pause a job until it is resumed.

    Ends its processes; a suspended job holds nothing. Returns when no process is left.
    """
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _suspend(target, target.namespace, name, output))


def resume(
    name: JobName,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Let a suspended job run again."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _resume(target, target.namespace, name, output))


def scale(
    name: JobName,
    *,
    nodes: Annotated[
        int, typer.Option("--nodes", "--nnodes", min=1, metavar="N", help="Number of training nodes.")
    ],
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change the node count of a suspended job."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _scale(target, target.namespace, name, nodes, output))


async def _suspend(target: Target, namespace: str, name: str, output: OutputFormat) -> None:
    from trainwright.api.meta import ObjectKey
    from trainwright.cli.changing import change_train_job
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.job_rows import get_phase, is_finished
    from trainwright.cli.reporting import report_change
    from trainwright.cli.watching import watch_train_job
    from trainwright.errors import NotFound

    job = await get_train_job(target.cluster, namespace, name)
    if is_finished(job):
        await report_change(target, namespace, name, f"is already {get_phase(job)}", output)
        return
    done = "suspended"
    changed = await change_train_job(target, namespace, name, {"spec": {"suspend": True}})
    async for seen in watch_train_job(target, ObjectKey(changed.kind, namespace, name)):
        if seen is None:
            raise NotFound(changed.kind, name, "it was deleted meanwhile")
        if is_finished(seen):
            done = f"is {get_phase(seen)}: it ended before it was suspended"
            break
        status = seen.status
        held = any(
            c.type == "Suspended" and c.status == "True"
            for c in (status.conditions if status else None) or ()
        )
        if held and not any(job.active for job in (status.jobs_status if status else None) or ()):
            break
    await target.wait_until_idle(changed.metadata)
    await report_change(target, namespace, name, done, output)


async def _resume(target: Target, namespace: str, name: str, output: OutputFormat) -> None:
    from trainwright.cli.changing import change_train_job
    from trainwright.cli.reporting import report_change

    changed = await change_train_job(target, namespace, name, {"spec": {"suspend": False}})
    await target.engage(changed)
    await report_change(target, namespace, name, "resumed", output)


async def _scale(target: Target, namespace: str, name: str, nodes: int, output: OutputFormat) -> None:
    from trainwright.cli.changing import change_train_job
    from trainwright.cli.reporting import report_change

    await change_train_job(target, namespace, name, {"spec": {"trainer": {"numNodes": nodes}}})
    await report_change(
        target, namespace, name, f"scaled to {nodes} training node{'s' if nodes > 1 else ''}", output
    )
