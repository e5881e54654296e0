"""The program: which verbs there are, and what becomes of errors.

Exit codes: 0 ok, 1 the job failed (or the command did), 2 wrong usage or invalid object, 3 not found, 4 the
target is not reachable; 130 and 143 where ctrl-C or SIGTERM ended the command, 141 where whoever read its
output went away. A `UserError` is one clear message on stderr; everything else is a bug and shows its
traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from trainwright.cli.verbs.apply import apply
from trainwright.cli.verbs.controller import controller
from trainwright.cli.verbs.delete import delete
from trainwright.cli.verbs.explain import explain
from trainwright.cli.verbs.get import get
from trainwright.cli.verbs.install import install
from trainwright.cli.verbs.list import list_jobs
from trainwright.cli.verbs.logs import logs
from trainwright.cli.verbs.render import render
from trainwright.cli.verbs.run import RunCommand, run
from trainwright.cli.verbs.runtimes import runtimes
from trainwright.cli.verbs.spec_changes import resume, scale, suspend
from trainwright.cli.verbs.stop import stop
from trainwright.cli.verbs.uninstall import uninstall
from trainwright.cli.verbs.validate import validate
from trainwright.cli.verbs.wait import wait

PROGRAM = "trainwright"

OUTPUT_CLOSED_EXIT_CODE = 141

# A full disk is nobody's mistake, whatever was being written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

app = typer.Typer(
    name=PROGRAM,
    help="Run distributed training jobs: one TrainJob, from a laptop to a cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich alone would take as long to import as everything else
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from trainwright import __version__
        from trainwright.cli.console import write_data

        write_data(f"trainwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Run distributed training jobs: one TrainJob, from a laptop to a cluster."""


_VERBS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("apply", apply),
    ("validate", validate),
    ("render", render),
    ("list", list_jobs),
    ("get", get),
    ("logs", logs),
    ("wait", wait),
    ("suspend", suspend),
    ("resume", resume),
    ("scale", scale),
    ("stop", stop),
    ("delete", delete),
    ("explain", explain),
    ("install", install),
    ("uninstall", uninstall),
    ("controller", controller),
)

app.command("run", cls=RunCommand)(run)
for _name, _verb in _VERBS:
    app.command(_name)(_verb)
app.add_typer(runtimes, name="runtimes")


def run_command_line(words: Sequence[str]) -> int:
    """Run one command and return its exit code; bugs are raised."""
    command = typer.main.get_command(app)
    try:
        command.main(args=list(words), prog_name=PROGRAM)
    except SystemExit as ended:
        return _read_exit_code(ended)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        code = _report(error)
        if code is None:
            raise
        return code
    return 0


def _report(error: Exception) -> int | None:
    """Print what the user has to know and return the exit code; None for a bug."""
    from trainwright.cli.console import OutputClosed, OutputLost, let_go_of_output, say
    from trainwright.cli.manifests import InvalidManifests
    from trainwright.errors import UserError

    while isinstance(
        error, ExceptionGroup
    ):  # a task group of one command: the first error is the one to tell
        error = error.exceptions[0]
    if isinstance(error, OutputClosed):
        return OUTPUT_CLOSED_EXIT_CODE
    if isinstance(error, OutputLost):
        say(f"Error: {error}")
        return UserError.exit_code
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        let_go_of_output()  # typer prints help itself
        say(f"Error: {error}; free some space and repeat")
        return UserError.exit_code
    if isinstance(error, UserError):
        if text := str(error):
            # Mistakes in files begin with their place, so that editors and terminals can jump there.
            say(text if isinstance(error, InvalidManifests) else f"Error: {text}")
        return error.exit_code
    return None


def _read_exit_code(ended: SystemExit) -> int:
    return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
