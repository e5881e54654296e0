"""Write the reference of the command line from the command line itself.

python docs/generate_cli.py            writes docs/reference/command-line.md
python docs/generate_cli.py --check    exits 1 where that would change the file
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from trainwright.cli.app import PROGRAM, app

REFERENCE = Path(__file__).parent / "reference" / "command-line.md"
_WIDTH = 100
_HEAD = """# Command line

<!-- Made by docs/generate_cli.py from the program; edit the program instead. -->

`trainwright VERB [OPTIONS]`. Every verb takes `--on` (where jobs run), `-n` (namespace) and `-o` (how to
print); stdout is data, stderr is talk, and colours and progress bars are drawn on a terminal only.

| exit code | means |
|---|---|
| 0 | ok |
| 1 | the job failed, or something else did |
| 2 | wrong usage, or an invalid object |
| 3 | not found |
| 4 | the target is not reachable |
| 130, 143 | ended by ctrl-C, by SIGTERM |
| 141 | whoever read the output went away |

The default of `--on` is `$TRAINWRIGHT_ON`, else `on = "..."` in `~/.config/trainwright/config.toml`
(`$XDG_CONFIG_HOME` is respected), else `local`. Objects, logs and histories lie in
`~/.local/state/trainwright` (`$XDG_STATE_HOME` is respected; `$TRAINWRIGHT_STATE` names another folder).

`trainwright --install-completion` teaches your shell the verbs, options, and names of jobs and runtimes.
"""


def generate() -> str:
    """Return the whole page."""
    root: Any = typer.main.get_command(app)
    context = root.context_class(root, info_name=PROGRAM)
    return "\n".join([_HEAD, *_list_commands(root, context)])


def _list_commands(group: Any, context: Any) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = command.context_class(command, info_name=name, parent=context, terminal_width=_WIDTH)
        yield _format_command(command, below)
        if hasattr(command, "list_commands"):
            yield from _list_commands(command, below)


def _format_command(command: Any, context: Any) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    blocks = [
        f"## {context.command_path}",
        f"```text\n{usage}\n```",
        _unwrap(inspect.cleandoc(command.help or "")),
    ]
    rows = [
        (_escape(re.sub(r" <(str|list\[str\])>$", "", record[0])), _escape(record[1]))
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) and "--help" not in record[0]
    ]
    if rows:
        blocks.append("\n".join(["| | |", "|---|---|", *(f"| `{names}` | {text} |" for names, text in rows)]))
    return "\n\n".join(blocks) + "\n"


def _unwrap(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    page = generate()
    if sys.argv[1:] == ["--check"]:
        if not REFERENCE.is_file() or REFERENCE.read_text(encoding="utf-8") != page:
            sys.exit(f"{REFERENCE} is out of date: run python docs/generate_cli.py")
    else:
        REFERENCE.parent.mkdir(exist_ok=True)
        REFERENCE.write_text(page, encoding="utf-8")
