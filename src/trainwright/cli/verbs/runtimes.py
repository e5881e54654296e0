"""`trainwright runtimes`: the shipped and installed runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.completion import complete_runtime_names
from trainwright.cli.options import Context, Kubeconfig, Namespace, On, Output, OutputFormat

if TYPE_CHECKING:
    from trainwright.cli.targets import Target

runtimes = typer.Typer(
    help="List runtimes, or print one.",
    rich_markup_mode=None,
    invoke_without_command=True,
    no_args_is_help=False,
)


@runtimes.callback()
def _default(
    ctx: typer.Context,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List runtimes, or print one."""
    if ctx.invoked_subcommand is None:
        list_all(on, namespace, context, kubeconfig, output)
    elif (on, namespace, context, kubeconfig) != (None,) * 4 or output is not OutputFormat.TABLE:
        from trainwright.errors import UsageError

        raise UsageError(f"write the options behind {ctx.invoked_subcommand!r}")


@runtimes.command("list")
def list_all(
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the runtimes that jobs of the namespace can use."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _list(target, target.namespace, output))


@runtimes.command("get")
def get_one(
    name: Annotated[
        str,
        typer.Argument(help="Name of the runtime.", metavar="NAME", autocompletion=complete_runtime_names),
    ],
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.YAML,
) -> None:
    """Print one runtime: the namespace's own, else the installed one, else the shipped one."""
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    run_on_target(where, lambda target: _get(target, target.namespace, name, output))


async def _list(target: Target, namespace: str, output: OutputFormat) -> None:
    from trainwright.api.encoding import build_object
    from trainwright.cli.console import write_data
    from trainwright.cli.reporting import print_objects, wants_table
    from trainwright.cli.runtime_lookup import list_runtimes
    from trainwright.cli.runtime_rows import HEADER, WIDE_HEADER, build_row, build_wide_row
    from trainwright.cli.tables import format_table

    known = await list_runtimes(target, namespace)
    objects = [build_object(entry.runtime) for entry in known]
    if not wants_table(output):
        print_objects(objects, output)
    elif output is OutputFormat.WIDE:
        write_data(format_table(WIDE_HEADER, [build_wide_row(entry) for entry in known]))
    else:
        write_data(format_table(HEADER, [build_row(entry) for entry in known]))


async def _get(target: Target, namespace: str, name: str, output: OutputFormat) -> None:
    from trainwright.api.encoding import build_object
    from trainwright.cli.console import write_data
    from trainwright.cli.reporting import print_object
    from trainwright.cli.runtime_lookup import find_runtime, list_runtimes
    from trainwright.cli.runtime_rows import HEADER, WIDE_HEADER, build_row, build_wide_row
    from trainwright.cli.tables import format_table

    known = await list_runtimes(target, namespace)
    runtime = find_runtime(known, name)
    found = next(entry for entry in known if entry.runtime is runtime)
    if output is OutputFormat.TABLE:
        write_data(format_table(HEADER, [build_row(found)]))
    elif output is OutputFormat.WIDE:
        write_data(format_table(WIDE_HEADER, [build_wide_row(found)]))
    else:
        print_object(build_object(found.runtime), output)
