"""`trainwright controller`: the operator process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def controller(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", help="Configuration file. Default: no file.", metavar="FILE")
    ] = None,
    feature_gates: Annotated[
        str, typer.Option("--feature-gates", help="A=true,B=false; goes before the file.", metavar="GATES")
    ] = "",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig", help="Default: the pod's service account, else as kubectl.", metavar="FILE"
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", help="Look after this namespace alone. Default: all.", metavar="NAME"),
    ] = None,
    log_level: Annotated[
        str, typer.Option("--zap-log-level", help="debug, info, error, or a verbosity.", metavar="LEVEL")
    ] = "info",
    log_encoder: Annotated[
        str, typer.Option("--zap-encoder", help="json or console.", metavar="ENCODER")
    ] = "json",
    log_time: Annotated[
        str, typer.Option("--zap-time-encoding", help="rfc3339nano, epoch, ...", metavar="ENCODING")
    ] = "rfc3339nano",
    stacktrace_level: Annotated[
        str,
        typer.Option(
            "--zap-stacktrace-level", help="Accepted; errors have their traceback.", metavar="LEVEL"
        ),
    ] = "error",
    development: Annotated[
        bool, typer.Option("--zap-devel/--no-zap-devel", help="Text instead of JSON, and debug lines.")
    ] = False,
) -> None:
    """Run the operator: bring the TrainJobs of a cluster where they should be, until stopped.

    A configuration file made for Kubeflow Trainer is accepted as it is.
    """
    import asyncio
    import os

    from trainwright.cli.process import interruptible
    from trainwright.operator.logs import LogSettings, configure_logs
    from trainwright.operator.process import run_operator
    from trainwright.operator.startup import build_settings

    del stacktrace_level
    configure_logs(
        LogSettings(
            level="debug" if development and log_level == "info" else log_level,
            encoder="console" if development and log_encoder == "json" else log_encoder,
            time_encoding=log_time,
        )
    )
    settings = build_settings(
        os.environ, config=config, feature_gates=feature_gates, kubeconfig=kubeconfig, namespace=namespace
    )
    with interruptible():
        raise typer.Exit(asyncio.run(run_operator(settings)))
