"""Say what a verb did to an object: as talk, or as the object itself where a format was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.meta import Json
from trainwright.api.writing import build_document
from trainwright.cli.console import say, write_data
from trainwright.cli.finding import get_train_job_json
from trainwright.cli.options import OutputFormat
from trainwright.cli.printing import build_list, format_json, format_name
from trainwright.cli.targets import Target


async def report_change(target: Target, namespace: str, name: str, done: str, output: OutputFormat) -> None:
    """Say what was done to a TrainJob, or print it as it is now."""
    if wants_table(output):
        say(f"{name} {done}")
    else:
        print_object(await get_train_job_json(target.cluster, namespace, name), output)


def wants_table(output: OutputFormat) -> bool:
    """Say whether people read what is printed, rather than programs."""
    return output in {OutputFormat.TABLE, OutputFormat.WIDE}


def print_objects(objects: Sequence[Json], output: OutputFormat) -> None:
    """Print a list of objects as JSON, YAML or names."""
    if output is OutputFormat.JSON:
        write_data(format_json(build_list(objects)))
    elif output is OutputFormat.NAME:
        write_data("".join(f"{format_name(obj)}\n" for obj in objects))
    else:
        write_data(build_document(build_list(objects)))


def print_object(obj: Json, output: OutputFormat) -> None:
    """Print one object as JSON, YAML or name."""
    if output is OutputFormat.JSON:
        write_data(format_json(obj))
    elif output is OutputFormat.NAME:
        write_data(format_name(obj))
    else:
        write_data(build_document(obj))
