"""`trainwright explain`: why a job does what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.cli.options import Context, JobName, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target


def explain(
    name: JobName,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain why a job failed, or does not run.

    Prints the cause, what to do about it, and what each layer says, from the TrainJob to the container.
    """
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _explain(target, target.namespace, name, output))


async def _explain(target: Target, namespace: str, name: str, output: OutputFormat) -> None:
    from datetime import UTC, datetime

    from trainwright.api.encoding import build_json
    from trainwright.api.writing import build_document
    from trainwright.cli.chain_reading import read_chain
    from trainwright.cli.console import write_data
    from trainwright.cli.explanation import format_explanation, list_findings
    from trainwright.cli.finding import get_train_job
    from trainwright.cli.printing import format_json

    await target.settle()
    chain = await read_chain(target, await get_train_job(target.cluster, namespace, name))
    if output in {OutputFormat.JSON, OutputFormat.YAML}:
        status = chain.train_job.status
        cause = status.cause if status else None
        answer = {"cause": build_json(cause), "layers": build_json(list_findings(chain))}
        write_data(format_json(answer) if output is OutputFormat.JSON else build_document(answer))
    elif output is OutputFormat.NAME:
        write_data(name)
    else:
        write_data(format_explanation(chain, datetime.now(UTC)))
