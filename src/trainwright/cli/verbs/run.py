"""`trainwright run`: a TrainJob from a script and flags, started and followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from trainwright.cli.options import Context, Kubeconfig, Namespace, On, Output, OutputFormat, RuntimeName

if TYPE_CHECKING:
    from trainwright.api.meta import Json
    from trainwright.api.runtime import Runtime
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.build_train_job import Asked, Entry
    from trainwright.cli.targets import Packed, Target

_AFTER_DASHES = "trainwright.after_dashes"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: no vowels, no digits that look like letters
_SUFFIX_LENGTH = 5


class RunCommand(TyperCommand):
    """Sets apart what stands after `--`, so that a program can be told from a script and its arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return how the command is used, after its name."""
        return ["[OPTIONS]", "[SCRIPT | -m MODULE]", "[-- ARGS... | -- PROGRAM ARGS...]"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the first `--`; keep the rest as it is, None where there is no `--`."""
        before, after = args, None
        if "--" in args:
            place = args.index("--")
            before, after = args[:place], args[place + 1 :]
        ctx.meta[_AFTER_DASHES] = after
        try:
            return super().parse_args(ctx, before)
        except typer.TyperException as exception:
            error: Any = exception
            if hasattr(error, "possibilities"):  # there is no such option: probably it is the script's
                remedy = f"options of the script stand after --: trainwright run ... -- {error.option_name}"
                error.message = f"{error.message}; {remedy}"
                error.possibilities = None
            raise


def run(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="SCRIPT", hidden=True)] = None,
    *,
    module: Annotated[
        str | None,
        typer.Option("--module", "-m", metavar="MODULE", help="Run a Python module instead of a script."),
    ] = None,
    runtime: RuntimeName = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", "--nnodes", metavar="N", help="Number of training nodes.")
    ] = None,
    nproc_per_node: Annotated[
        str | None,
        typer.Option(
            "--nproc-per-node", "--nproc_per_node", metavar="P", help="Processes on each training node."
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", min=0, metavar="G", help="GPUs for each training node.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", metavar="K=V", help="Set a variable; K alone takes it from your environment."
        ),
    ] = None,
    env_file: Annotated[
        list[str] | None, typer.Option("--env-file", metavar="FILE", help="File with a variable a line.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the job. Default: after the script.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Container image, for targets that use one."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Fail the job if it runs longer: 90s, 15m, 2h."),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="Delete the job so long after it finished.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="On a cluster: wait for room in this LocalQueue of Kueue.",
            show_default=False,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start the job, print its name and return.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the TrainJob instead of running it.")
    ] = False,
    code_volume: Annotated[
        str | None,
        typer.Option(
            metavar="CLAIM[:FOLDER]",
            help="On a cluster: the code is in this volume, instead of being sent from here.",
            show_default=False,
        ),
    ] = None,
    code_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="On a cluster: the code is in this tar archive, which each node downloads.",
            show_default=False,
        ),
    ] = None,
    no_code: Annotated[
        bool, typer.Option("--no-code", help="On a cluster: the code is in the image; send nothing.")
    ] = False,
    on: On = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Run a script or program as a training job; follow it.

    SCRIPT is a Python file or an executable. What stands after -- goes to it; without SCRIPT and -m it is the
    program to run. Ctrl-C stops the job, a second ctrl-C kills it. To a cluster the working directory is sent
    along, except for what .gitignore and .trainwrightignore name.
    """
    from trainwright.cli.build_train_job import Asked, parse_process_count
    from trainwright.cli.code_sources import RunWords, parse_code_options
    from trainwright.cli.durations import parse_duration
    from trainwright.cli.session import run_on_target
    from trainwright.cli.targets import Where

    behind = ctx.meta[_AFTER_DASHES]
    asked = Asked(
        words=RunWords(
            module=module, words=tuple(words or ()), after_dashes=None if behind is None else tuple(behind)
        ),
        code=parse_code_options(code_volume, code_url, none=no_code),
        name=name,
        runtime=runtime,
        env=_read_env(env or [], env_file or []),
        image=image,
        num_nodes=parse_process_count(nodes, "--nodes"),
        num_proc_per_node=parse_process_count(nproc_per_node, "--nproc-per-node"),
        gpus_per_node=gpus_per_node,
        deadline_seconds=None if deadline is None else parse_duration(deadline, "--deadline"),
        ttl_seconds=None if ttl is None else parse_duration(ttl, "--ttl"),
        queue=queue,
    )
    where = Where(on=on, namespace=namespace, context=context, kubeconfig=kubeconfig)
    start = _print if dry_run else _start_and_leave if detach else _start_and_follow
    run_on_target(where, lambda target: start(target, asked, output))


def _make_name(entry: Entry) -> str:
    import secrets

    from trainwright.cli.build_train_job import derive_name

    return derive_name(entry, "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH)))


def _read_env(options: list[str], files: list[str]) -> dict[str, str]:
    import os

    from trainwright.cli.environment_options import parse_env_file, parse_env_options
    from trainwright.cli.files import read_text

    env: dict[str, str] = {}
    for file in files:
        env |= parse_env_file(read_text(file), file, os.environ)
    return env | parse_env_options(options, os.environ)


async def _print(target: Target, asked: Asked, output: OutputFormat) -> None:
    from trainwright.api.encoding import build_object
    from trainwright.cli.reporting import print_object

    packed, _ = await _build(target, asked)
    print_object(build_object(packed.train_job), output)


async def _start_and_leave(target: Target, asked: Asked, output: OutputFormat) -> None:
    from trainwright.api.encoding import build_object
    from trainwright.cli.console import say, write_data
    from trainwright.cli.reporting import print_object, wants_table

    train_job = await _start(target, asked)
    if wants_table(output):
        write_data(train_job.metadata.name)
        say(f"follow it with `trainwright logs {train_job.metadata.name} --follow{_name_place(target)}`")
    else:
        print_object(build_object(train_job), output)


async def _start_and_follow(target: Target, asked: Asked, output: OutputFormat) -> None:
    from datetime import UTC, datetime

    from trainwright.cli.console import say
    from trainwright.cli.following import Follower, catch_signals
    from trainwright.cli.job_rows import get_phase
    from trainwright.cli.progress_display import build_display
    from trainwright.cli.reporting import print_object, wants_table
    from trainwright.cli.verdict import JobFailed, format_end, format_failure
    from trainwright.errors import UserError

    wants_object = not wants_table(output)
    with catch_signals() as signals:
        train_job = await _start(target, asked)
        with build_display(output_is_talk=wants_object) as display:
            follower = Follower(target, train_job, display, signals)
            ended = await follower.follow()
    if wants_object:
        print_object(await _read_ended(target, ended), output)
    say(format_end(ended, datetime.now(UTC)))
    if follower.signal_received is not None:
        raise typer.Exit(128 + follower.signal_received)
    if get_phase(ended) == "Suspended":
        name = ended.metadata.name
        raise UserError(
            f"{name} was suspended; `trainwright resume {name}{_name_place(target)}` lets it go on"
        )
    if get_phase(ended) == "Failed":
        raise JobFailed(format_failure(ended))


def _name_place(target: Target) -> str:
    """Return the options by which another command finds the job, whatever that command's settings say."""
    from trainwright.cli.target_names import TargetName

    return "" if target.name is TargetName.LOCAL else f" --on {target.name} -n {target.namespace}"


async def _read_ended(target: Target, ended: TrainJob) -> Json:
    """Return the job as it is stored, or as it was in the end where it was deleted at once."""
    from trainwright.api.encoding import build_object
    from trainwright.cli.stopping import build_key
    from trainwright.errors import NotFound

    try:
        return await target.cluster.get(build_key(ended))
    except NotFound:
        return build_object(ended)


async def _start(target: Target, asked: Asked) -> TrainJob:
    from trainwright.api.encoding import parse_object
    from trainwright.api.trainjob import TrainJob
    from trainwright.cli.console import say
    from trainwright.cli.stopping import build_key

    packed, runtime = await _build(target, asked)
    stored = parse_object(await target.submit(packed), TrainJob)
    for notice in target.list_notices(stored, runtime):
        say(notice)
    try:
        await target.engage(stored)
    except BaseException:
        # Nobody works on it and its name would be taken: as if it had never been.
        await target.cluster.delete(build_key(stored), stored.metadata.uid)
        raise
    return stored


async def _build(target: Target, asked: Asked) -> tuple[Packed, Runtime]:
    """Return the job as it will be created, checked, and its runtime."""
    from trainwright.cli.admitting import admit_new
    from trainwright.cli.build_train_job import build_train_job
    from trainwright.cli.console import warn
    from trainwright.cli.runtime_lookup import choose_runtime, list_runtimes

    entry = target.find_entry(asked.words, asked.code)
    name = asked.name if asked.name is not None else _make_name(entry)
    request = asked.place(entry, name, target.namespace, target.build_annotations())
    python = target.find_python()
    known = await list_runtimes(target, target.namespace)
    runtime, choice = choose_runtime(known, request, python)
    packed = target.pack(build_train_job(request, choice, python), runtime, entry, asked.code)
    for warning in admit_new(packed.train_job, runtime, known):
        warn(warning)
    return packed, runtime
