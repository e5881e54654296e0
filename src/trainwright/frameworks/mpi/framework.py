"""The MPI framework: keys for all pods, hosts and variables for the launcher (spec 02 section 6.2)."""

from __future__ import annotations

from trainwright.api.constants import LAUNCHER, NODE
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.mpi.checks import find_errors, list_warnings, must_wait_for_nodes
from trainwright.frameworks.mpi.environment import (
    POD_INTERFACE,
    build_open_mpi_4_env,
    build_other_env,
    get_main_form,
)
from trainwright.frameworks.mpi.hostfile import HYDRA, OPEN_MPI, build_hostfile
from trainwright.frameworks.mpi.keys import build_secret, build_volume, build_volume_mount, runs_as_root
from trainwright.frameworks.mpi.nodes import (
    count_slots,
    get_policy,
    is_launcher_a_node,
    list_training_pod_sets,
)
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet


class MPI:
    """One launcher, which starts ranks on all nodes by ssh. Roles go by name, not by label."""

    name = "mpi"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has an mpi block."""
        return policy is not None and policy.mpi is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what would leave the job on one host, or without its keys."""
        return find_errors(layout)

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return what may leave ranks unstarted or the job unfinished."""
        return list_warnings(layout)

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return the keys, the hostfile, and what mounts them."""
        pods: dict[str, PodAddition] = {}
        objects: tuple[Json, ...] = ()
        if (node := layout.find_pod_set(NODE)) is not None and (found := node.find_container(NODE)):
            pods[NODE] = PodAddition(
                containers={NODE: ContainerAddition(volume_mounts=(build_volume_mount(layout),))},
                volumes=(build_volume(layout, found, node),),
            )
        if (launcher := layout.find_pod_set(LAUNCHER)) is not None and (
            found := launcher.find_container(NODE)
        ):
            pods[LAUNCHER], objects = _build_launcher(layout, launcher, found)
        return Contribution(pods=pods, secrets=(build_secret(layout),) if pods else (), objects=objects)


def _list_hosts(layout: JobLayout) -> dict[str, list[str]]:
    """Return the hosts in rank order, as each form of the hostfile names them.

    A launcher that is a node has no sshd, and must know itself. Open MPI compares addresses; Hydra, in
    MPICH 4 and Intel MPI, knows itself by its bare host name alone.
    """
    endpoints = [
        endpoint
        for training in list_training_pod_sets(layout)
        for endpoint in layout.iterate_endpoints(training)
    ]
    if not is_launcher_a_node(layout) or not endpoints:
        return {OPEN_MPI: endpoints, HYDRA: endpoints}
    launcher, *others = endpoints
    return {OPEN_MPI: endpoints, HYDRA: [launcher.partition(".")[0], *others]}


def _build_launcher(
    layout: JobLayout, pod_set: PodSet, container: Json
) -> tuple[PodAddition, tuple[Json, ...]]:
    """Return what the launcher gets, and the objects that it mounts besides the keys."""
    slots = count_slots(layout)
    main_form = get_main_form(get_policy(layout).mpi_implementation)
    as_it_runs = {**container, "image": layout.trainer.image} if layout.trainer.image else container
    hostfile = build_hostfile(layout.job_name, _list_hosts(layout), slots, main_form, as_it_runs)
    said = {entry["name"] for entry in container.get("env") or ()}
    others = build_other_env(
        slots,
        main_form,
        runs_as_root=runs_as_root(layout, container, pod_set),
        interface=None if pod_set.pod_spec.get("hostNetwork") else POD_INTERFACE,
    )
    env = (
        *build_open_mpi_4_env(slots, main_form),
        # A runtime that was made for one of these may say more than we know.
        *(entry for entry in others if entry["name"] not in said),
    )
    addition = PodAddition(
        containers={
            NODE: ContainerAddition(
                env=env, volume_mounts=(build_volume_mount(layout), *hostfile.volume_mounts)
            )
        },
        volumes=(build_volume(layout, container, pod_set), *hostfile.volumes),
        init_containers=hostfile.init_containers,
        starts_after=(NODE,) if must_wait_for_nodes(layout) else (),
    )
    return addition, hostfile.objects
