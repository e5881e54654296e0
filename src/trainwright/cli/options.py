"""The options and arguments that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainwright.cli.completion import complete_job_names, complete_runtime_names
from trainwright.cli.target_names import TargetName


class OutputFormat(StrEnum):
    """How data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class ObjectsFormat(StrEnum):
    """How whole objects are printed, where a table says nothing."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


On = Annotated[
    TargetName | None,
    typer.Option(
        "--on",
        help="Where jobs run. Default: $TRAINWRIGHT_ON, else the config file, else local.",
        show_default=False,
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace of the objects. Default: the context's on a cluster, else default.",
        metavar="NAME",
        show_default=False,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig, for a cluster. Default: the current one.",
        metavar="NAME",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Kubeconfig file, for a cluster. Default: as kubectl.",
        metavar="FILE",
        show_default=False,
    ),
]
Live = Annotated[
    bool,
    typer.Option("--live", help="Ask the cluster for its runtimes and the objects that exist there."),
]
JobName = Annotated[
    str, typer.Argument(help="Name of the TrainJob.", metavar="NAME", autocompletion=complete_job_names)
]
Files = Annotated[
    list[str],
    typer.Option("--filename", "-f", help="YAML or JSON file; - is stdin. May be repeated.", metavar="FILE"),
]
ObjectsOutput = Annotated[ObjectsFormat, typer.Option("--output", "-o", help="How to print.")]
RuntimeName = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        help="Runtime to use. Default: torch-distributed for Python code whose Python has torch, else plain.",
        metavar="NAME",
        show_default=False,
        autocompletion=complete_runtime_names,
    ),
]
