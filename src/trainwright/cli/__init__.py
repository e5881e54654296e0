"""The command line (design section 6).

`app` knows the verbs, `verbs/` has one module for each, `targets/` one for each place where jobs run; the
rest is what verbs share. Nothing heavier than typer is imported before the verb is known: what a verb needs
is
imported inside it.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    import sys

    try:
        from trainwright.cli.process import prepare_process

        prepare_process()
    except KeyboardInterrupt:  # from here on ctrl-C is the system's, but while a command is at work
        sys.exit(130)
    from trainwright.cli.app import run_command_line

    sys.exit(run_command_line(sys.argv[1:]))
