"""`--env` and `--env-file`: the environment variables that a job gets from the command line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainwright.errors import UsageError

# What the Kubernetes API takes as the name of a variable: printable ASCII without "=". Narrower here, as the
# shell has it: a name such as "a b" is a slip, never a wish.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def parse_env_options(options: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `K=V` and `K` (value from the caller's environment); the last one wins."""
    return dict(_parse_assignment(option, environment, "--env") for option in options)


def parse_env_file(text: str, source: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a file with one `K=V` or `K` a line.

    Blank lines and lines that start with `#` are skipped, a leading `export ` is allowed, one pair of
    matching quotes around a value is taken off; nothing is expanded. Raises UsageError with the line.
    """
    variables = {}
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.strip()
        if not line or line.startswith("#"):
            continue
        name, value = _parse_assignment(
            line.removeprefix("export ").lstrip(), environment, f"{source}:{number}"
        )
        variables[name] = _unquote(value.strip()) if "=" in line else value
    return variables


def _parse_assignment(text: str, environment: Mapping[str, str], source: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{source}: {text!r} does not start with the name of a variable; write NAME=VALUE or NAME"
        )
    if "\0" in value:
        raise UsageError(
            f"{source}: the value of {name} contains a NUL character, which no environment can hold"
        )
    if equals:
        return name, value
    if name not in environment:
        raise UsageError(f"{source}: {name} is not set in your environment; set it, or write {name}=VALUE")
    return name, environment[name]


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
