"""`trainwright install`: the operator for a cluster, as YAML or applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainwright.cli.cluster_options import Apply, Context

if TYPE_CHECKING:
    from trainwright.api.meta import Json
    from trainwright.api.runtime import ClusterTrainingRuntime
    from trainwright.cluster.kube.transport import Transport
    from trainwright.manifests.settings import InstallSettings


def install(
    *,
    apply: Apply = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the operator.", metavar="NAME")
    ] = "kubeflow-system",
    watch_namespace: Annotated[
        str | None,
        typer.Option(
            "--watch-namespace",
            help="Run the TrainJobs of this namespace alone, with rights to it alone. Default: of all.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            help="Image of the operator, made from deploy/Containerfile. Default: that of this version.",
            metavar="IMAGE",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", help="Pods of the operator.", min=1)] = 2,
    feature_gates: Annotated[
        str,
        typer.Option("--feature-gates", help="A=true,B=false", metavar="GATES", show_default=False),
    ] = "",
    public_read: Annotated[
        bool,
        typer.Option(
            "--public-read/--no-public-read", help="Let every user of the cluster list cluster runtimes."
        ),
    ] = True,
    runtimes: Annotated[
        str | None,
        typer.Option(
            "--runtimes",
            help="Names of shipped runtimes, with commas between them, or none. Default: all of them.",
            metavar="NAMES",
            show_default=False,
        ),
    ] = None,
    context: Context = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Take the place of another operator, or of another version."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="With --apply: wait until the operator is ready.")
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait.", min=1, metavar="SECONDS")
    ] = 300,
) -> None:
    """Print what an operator on a cluster consists of, or apply it.

    Prints YAML, for kubectl or for a repository. With --apply everything is applied to the cluster: the
    namespace, the kinds, rights, operator, webhooks and the shipped runtimes; JobSet must be there. Applying
    again changes nothing; runtimes that are there and not named any more stay.

    With --watch-namespace rights are Roles in that namespace. What no namespace can hold remains, and is
    listed: definitions, webhooks, cluster runtimes, and a ClusterRole for these.
    """
    from trainwright.api.encoding import build_object
    from trainwright.api.names import explain_label
    from trainwright.api.writing import build_yaml
    from trainwright.cli.console import write_data
    from trainwright.errors import UsageError
    from trainwright.manifests.installation import build_installation
    from trainwright.manifests.settings import DEFAULT_IMAGE, InstallSettings
    from trainwright.operator.feature_gates import parse_feature_gates

    for option, name in (("--namespace", namespace), ("--watch-namespace", watch_namespace)):
        if name is not None and (problem := explain_label(name)):
            raise UsageError(f"{option}: {problem}")
    settings = InstallSettings(
        namespace=namespace,
        watch_namespace=watch_namespace,
        image=image or DEFAULT_IMAGE,
        replicas=replicas,
        feature_gates=parse_feature_gates(feature_gates),
        public_read=public_read,
    )
    objects = build_installation(settings, [build_object(one) for one in _choose_runtimes(runtimes)])
    if watch_namespace is not None:
        _tell_cluster_part(watch_namespace, objects)
    if apply:
        wait_seconds = timeout if wait else None
        _apply_to_cluster(settings, objects, context, replace=replace, wait_seconds=wait_seconds)
    else:
        write_data(build_yaml(objects))


def _tell_cluster_part(watched: str, objects: list[Json]) -> None:
    """Say which of the objects are in no namespace although the operator watches one alone."""
    from collections import Counter

    from trainwright.cli.console import say

    count = Counter(obj["kind"] for obj in objects if "namespace" not in obj["metadata"])
    del count["Namespace"]
    parts = ", ".join(f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in count.items())
    say(
        f"the operator runs the TrainJobs of namespace {watched} alone; for the whole cluster there remains "
        f"what no namespace can hold: {parts}"
    )


def _choose_runtimes(names: str | None) -> list[ClusterTrainingRuntime]:
    """Return the shipped runtimes of these names. Raises UsageError where there is none of a name."""
    from trainwright.cli.finding import find_near_names
    from trainwright.errors import UsageError
    from trainwright.runtimes import load_shipped_runtimes

    shipped = load_shipped_runtimes()
    if names is None:
        return list(shipped.values())
    chosen = [] if names.strip() == "none" else [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in shipped:
            near = find_near_names(name, shipped) or list(shipped)
            raise UsageError(
                f"--runtimes: {name!r} does not come with trainwright; use one of {', '.join(near)}, or none"
            )
    return [shipped[name] for name in dict.fromkeys(chosen)]


def _apply_to_cluster(
    settings: InstallSettings,
    objects: list[Json],
    context: str | None,
    *,
    replace: bool,
    wait_seconds: float | None,
) -> None:
    from trainwright.cli.cluster_session import run_on_cluster
    from trainwright.cli.console import say
    from trainwright.operator.install import (
        apply_installation,
        check_cluster,
        remove_other_access,
        wait_until_ready,
    )

    async def work(transport: Transport) -> None:
        await check_cluster(transport, settings, objects, replace=replace)
        await apply_installation(transport, objects, say)
        await remove_other_access(transport, objects, say)
        if wait_seconds is not None:
            say(f"waiting until the operator in namespace {settings.namespace} is ready")
            await wait_until_ready(transport, settings, wait_seconds)
            say("the operator is ready")

    run_on_cluster(context, work)
