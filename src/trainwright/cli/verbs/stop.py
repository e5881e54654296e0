"""`trainwright stop`: end a job for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target


def stop(
    name: JobName,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """End a job for good.

    Its status, output and history stay. Returns when no process is left.
    """
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _stop(target, target.namespace, name, output))


async def _stop(target: Target, namespace: str, name: str, output: OutputFormat) -> None:
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.job_rows import get_phase, is_finished
    from trainwright.cli.reporting import report_change
    from trainwright.cli.stopping import request_stop, wait_until_finished

    job = await get_train_job(target.cluster, namespace, name)
    if is_finished(job):
        await report_change(target, namespace, name, f"is already {get_phase(job)}", output)
        return
    await request_stop(target, job)
    await wait_until_finished(target, job)
    await report_change(target, namespace, name, "stopped", output)
