"""The options of verbs that work on a cluster itself, and not on jobs."""

from __future__ import annotations

from typing import Annotated

import typer

Apply = Annotated[bool, typer.Option("--apply", help="Do it on the cluster, and not only print it.")]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig. Default: the current one.",
        metavar="NAME",
        show_default=False,
    ),
]
