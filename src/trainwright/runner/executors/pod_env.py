"""The environment and the command line of a container, as Kubernetes makes them, fitted to one machine.

Pure. In come the container, its pod and the `PodContext`; out come names and values, and what is missing.
The order, weakest first:

1. the environment of whoever submitted the job, without the identity that an outer launcher gave *that*
   process;
2. `extra_environment` of the context;
3. defaults of ours for a machine that several pods share (`build_defaults`);
4. the pod's `envFrom` and `env`, with ports and, without namespaces, addresses rewritten.

Ports: rendezvous servers listen on every address, so two jobs cannot both have 29500. `context.ports` maps
it to the job's own port, and these are rewritten, in values and arguments of the pod (never in what was
inherited):

| where | example |
|---|---|
| a variable whose name ends in PORT and whose whole value is the port | `PET_MASTER_PORT=29500` |
| `HOST:PORT` with a host of this job, localhost, 127.x.y.z or `[::1]` | `tcp://demo-node-0-0.demo:29500` |
| an option whose name ends in port, and its value | `--master-port=29500`, `--master_port 29500` |

With a host that has a port of its own (`context.host_ports`) it is that one.

Source: Kubernetes documentation, "Define dependent environment variables"; spec 02 sections 5.2 and 14.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trainwright.api import constants
from trainwright.api.meta import Json
from trainwright.api.quantity import QuantityError, parse_quantity
from trainwright.runner.executor import PodContext
from trainwright.runner.executors.flux_pod import build_installer_defaults, installs_flux
from trainwright.runner.executors.mpi_pod import (
    RemoteStart,
    belongs_to_outer_run,
    build_launcher_defaults,
    choose_links,
    find_remote_start,
)

# Who a process is in a distributed run. Inherited from an outer launcher they would lie about the pod.
IDENTITY: Final = frozenset({
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
    constants.PET_NNODES, constants.PET_NODE_RANK, constants.PET_NPROC_PER_NODE,
    constants.PET_MASTER_ADDR, constants.PET_MASTER_PORT,
})  # fmt: skip
# The variables that name the machine where a rendezvous takes place; the last one as HOST:PORT.
RENDEZVOUS: Final = (constants.PET_MASTER_ADDR, "MASTER_ADDR", "PET_RDZV_ENDPOINT")
# torchrun sends the output of a rank through its own, and marks every line. Bytes that no program prints
# (ASCII record and unit separators) tell the mark from text; `logs` takes it away again.
RANK_MARK_TEMPLATE: Final = "\x1e${rank}\x1f"
_RANK_LOG_VARIABLES: Final = (
    "PET_TEE", "PET_REDIRECTS", "PET_LOG_DIR", "PET_LOCAL_RANKS_FILTER",
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
)  # fmt: skip
_VARIABLE: Final = re.compile(r"\$(?:\$|\(([A-Za-z_.\-][A-Za-z0-9_.\-]*)\))")
_LOOPBACK: Final = r"localhost|127(?:\.\d{1,3}){3}|\[::1\]"
_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class Missing(Exception):
    """Something that the container refers to does not exist; the message is Kubernetes' own."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment has to know about this machine. `is_linux` decides the name of the loopback."""

    cpus: int
    memory_bytes: int = 0
    own_names: bool = True
    is_linux: bool = True
    is_root: bool = False


class PodIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and where it is among the pods of its JobSet."""

    pod: Json
    host_name: str
    address: str
    # Every way to write the address of a pod of this job -> its IP address.
    addresses: Mapping[str, str]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` replaced; what is not defined stays, and `$$` stands for `$`."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return values.get(name, match.group(0))

    return _VARIABLE.sub(replace, text)


def build_environment(
    container: Json, identity: PodIdentity, context: PodContext, machine: Machine
) -> dict[str, str]:
    """Return the whole environment of a container. Raises Missing."""
    own = _build_own(container, identity, context, machine)
    inherited = {
        name: value
        for name, value in context.environment.items()
        if name not in IDENTITY and not belongs_to_outer_run(name)
    }
    environment = {**inherited, **context.extra_environment}
    if folder := environment.get("VIRTUAL_ENV"):
        programs = f"{folder}/bin"
        path = environment.get("PATH", "")
        if programs not in path.split(":"):
            environment["PATH"] = f"{programs}:{path}" if path else programs
    environment |= build_defaults(own, environment, identity, context, machine)
    if find_remote_start(container) is RemoteStart.CLIENT:
        nodes = max(1, len(context.host_names) - 1)
        environment |= build_launcher_defaults(own, nodes, machine.cpus, is_root=machine.is_root)
        if not context.devices:
            # MPICH and Intel MPI hand what the launcher has to all ranks: "none" would hide their node's.
            del environment["CUDA_VISIBLE_DEVICES"]
    if installs_flux(container):
        environment |= build_installer_defaults(identity.address, context.ports)
    environment |= own
    environment |= _build_forced(own, context, machine)
    if find_remote_start(container) is RemoteStart.CLIENT:
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        environment |= choose_links(own, inherited, words, _get_loopback(machine))
    return environment


def rewrite(text: str, identity: PodIdentity, context: PodContext, machine: Machine) -> str:
    """Return a value or an argument of the pod with ports and, without own names, addresses rewritten."""
    hosts = "|".join(map(re.escape, sorted(identity.addresses, key=len, reverse=True)))
    local = f"{hosts}|{_LOOPBACK}" if hosts else _LOOPBACK
    ports = "|".join(map(str, context.ports))

    def replace_port_of_host(match: re.Match[str]) -> str:
        name, port = match.group(1), int(match.group(2))
        of_host = context.host_ports.get(name.partition(".")[0], {})
        return f"{name}:{of_host.get(port, context.ports[port])}"

    def replace_port(match: re.Match[str]) -> str:
        return f"{match.group(1)}{context.ports[int(match.group(2))]}"

    if ports:
        text = re.sub(rf"(?<![\w.-])({local}):({ports})(?!\d)", replace_port_of_host, text)
        text = re.sub(rf"(?<!\S)(--?[\w-]*port[=\s]\s*)({ports})(?!\d)", replace_port, text, flags=re.I)
    if not machine.own_names and hosts:
        text = re.sub(rf"(?<![\w.-])(?:{hosts})(?![\w-]|\.\w)", "127.0.0.1", text)
    return text


def build_arguments(
    container: Json,
    environment: Mapping[str, str],
    identity: PodIdentity,
    context: PodContext,
    machine: Machine,
) -> tuple[str, ...]:
    """Return command and args, expanded and rewritten.

    Names of hosts in the arguments of mpirun stay: it takes equal ones for one host, and needs no addresses.
    """
    if find_remote_start(container) is RemoteStart.CLIENT:
        machine = msgspec.structs.replace(machine, own_names=True)
    raw = [*(container.get("command") or ()), *(container.get("args") or ())]
    arguments: list[str] = []
    for text in raw:
        argument = rewrite(expand(text, environment), identity, context, machine)
        before = arguments[-1] if arguments else ""
        if re.fullmatch(r"--?[\w-]*port", before, flags=re.I) and argument.isdigit():
            argument = str(context.ports.get(int(argument), argument))
        arguments.append(argument)
    return tuple(arguments)


def build_defaults(
    own: Mapping[str, str],
    inherited: Mapping[str, str],
    identity: PodIdentity,
    context: PodContext,
    machine: Machine,
) -> dict[str, str]:
    """Return what we set where neither the pod nor, but for the identity, the submitter does.

    Output is not held back (a log must be current), threads are shared out among all processes of the job,
    and network libraries are led to the loopback where the names of the pods do not lead there.
    """
    metadata = identity.pod.get("metadata") or {}
    index = (metadata.get("annotations") or {}).get(constants.COMPLETION_INDEX)
    nodes = _number(own.get(constants.PET_NNODES)) or max(1, len(context.host_names))
    processes = count_processes(own, context, machine)
    defaults = {"PYTHONUNBUFFERED": "1"}
    if processes is not None:
        defaults["OMP_NUM_THREADS"] = str(max(1, machine.cpus // (nodes * processes)))
        if processes > 1 and not any(name in own or name in inherited for name in _RANK_LOG_VARIABLES):
            defaults |= {"PET_TEE": "3", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": RANK_MARK_TEMPLATE}
    if not machine.own_names:
        defaults["GLOO_SOCKET_IFNAME"] = _get_loopback(machine)
        if len(context.host_names) > 1:
            # "Nodes" with one host name: Open MPI's shared memory and its coll/han give wrong results.
            defaults |= {"OMPI_MCA_coll": "^han", "OMPI_MCA_btl": "tcp,self"}
    elif context.devices and len(context.host_names) > 1:
        # NCCL takes host names for machines; pods that share one machine reach each other's GPUs directly.
        defaults["NCCL_HOSTID"] = context.subdomain
    defaults = {name: value for name, value in defaults.items() if name not in inherited}
    if machine.own_names:
        defaults["HOSTNAME"] = identity.host_name
    if index is not None:
        defaults["JOB_COMPLETION_INDEX"] = str(index)
    defaults["CUDA_VISIBLE_DEVICES"] = ",".join(context.devices)
    return defaults


def count_processes(own: Mapping[str, str], context: PodContext, machine: Machine) -> int | None:
    """Return how many processes torchrun starts in this container; None where it is not for torchrun.

    `auto` counts GPUs, else CPUs; the pods of a job share the CPUs of one machine.
    """
    wanted = own.get(constants.PET_NPROC_PER_NODE)
    if wanted is None or (wanted not in ("auto", "cpu", "gpu") and not wanted.isdigit()):
        return None
    if wanted.isdigit():
        return int(wanted)
    visible = own.get("CUDA_VISIBLE_DEVICES")
    gpus = (
        len([device for device in visible.split(",") if device])
        if visible is not None
        else len(context.devices)
    )
    if gpus and wanted != "cpu":
        return gpus
    if wanted == "gpu":
        return None
    nodes = _number(own.get(constants.PET_NNODES)) or max(1, len(context.host_names))
    return max(1, machine.cpus // nodes)


def find_rank_base(environment: Mapping[str, str], processes: int | None) -> int | None:
    """Return the global rank of the container's first process, where it is fixed before the start."""
    node_rank = environment.get(constants.PET_NODE_RANK, "")
    if processes is None or not node_rank.isdigit():
        return None
    return int(node_rank) * processes


def find_rendezvous_hosts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variable -> host for each rendezvous address of the container."""
    hosts: dict[str, str] = {}
    for name in RENDEZVOUS:
        if value := environment.get(name):
            host = value.rpartition(":")[0] if name == "PET_RDZV_ENDPOINT" and ":" in value else value
            hosts[name] = host.strip("[]")
    return hosts


def _build_forced(own: Mapping[str, str], context: PodContext, machine: Machine) -> dict[str, str]:
    """Return what torchrun has to be told on one machine, whatever the pod says.

    With `auto` every pod would count all CPUs. Nodes in slices are not told their rank, and torchrun numbers
    them by host name: where they share the machine's, by process id. Here the rank is known.
    """
    forced: dict[str, str] = {}
    if own.get(constants.PET_NPROC_PER_NODE) in ("auto", "cpu"):
        processes = count_processes(own, context, machine)
        if processes is not None:
            forced[constants.PET_NPROC_PER_NODE] = str(processes)
    is_unnumbered = constants.SLICE_INDEX in own and constants.PET_NODE_RANK not in own
    if is_unnumbered and own.get(constants.PET_NNODES, "").isdigit() and context.node_rank is not None:
        forced |= {constants.PET_NODE_RANK: str(context.node_rank), constants.PET_RDZV_BACKEND: "static"}
    return forced


def _build_own(
    container: Json, identity: PodIdentity, context: PodContext, machine: Machine
) -> dict[str, str]:
    """Return what `envFrom` and `env` say, expanded in their order. Later entries win."""
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for kind, reference, known in (
            ("configmap", source.get("configMapRef"), context.config_maps),
            ("secret", source.get("secretRef"), context.secrets),
        ):
            if reference is None:
                continue
            name = reference.get("name", "")
            if name not in known:
                if reference.get("optional"):
                    continue
                raise Missing(f'{kind} "{name}" not found')
            for key, content in known[name].items():
                if _NAME.fullmatch(prefix + key):
                    values[prefix + key] = content.decode(errors="surrogateescape")
    for variable in container.get("env") or ():
        name = variable["name"]
        if (source := variable.get("valueFrom")) is not None:
            value = _read_source(source, container, identity, context, machine)
            if value is None:
                continue
        else:
            value = expand(variable.get("value") or "", values)
        value = rewrite(value, identity, context, machine)
        if name.upper().endswith("PORT") and value.isdigit():
            value = str(context.ports.get(int(value), value))
        values[name] = value
    return values


def _read_source(
    source: Json, container: Json, identity: PodIdentity, context: PodContext, machine: Machine
) -> str | None:
    """Return the value that `valueFrom` names; None where it is optional and absent."""
    if (field := source.get("fieldRef")) is not None:
        return read_field(field.get("fieldPath", ""), identity)
    if (resource := source.get("resourceFieldRef")) is not None:
        return read_resource(resource, container, identity.pod, machine)
    for kind, reference, known in (
        ("configmap", source.get("configMapKeyRef"), context.config_maps),
        ("secret", source.get("secretKeyRef"), context.secrets),
    ):
        if reference is None:
            continue
        name, key = reference.get("name", ""), reference.get("key", "")
        content = known.get(name)
        if content is not None and key in content:
            return content[key].decode(errors="surrogateescape")
        if reference.get("optional"):
            return None
        if content is None:
            raise Missing(f'{kind} "{name}" not found')
        namespace = (identity.pod.get("metadata") or {}).get("namespace") or "default"
        label = "ConfigMap" if kind == "configmap" else "Secret"
        raise Missing(f"couldn't find key {key} in {label} {namespace}/{name}")
    raise Missing(f"no source of a variable's value is known in {sorted(source)}")


def read_field(path: str, identity: PodIdentity) -> str:
    """Return a field of the pod as the downward API does, also `metadata.labels['key']`. Raises Missing."""
    metadata = identity.pod.get("metadata") or {}
    spec = identity.pod.get("spec") or {}
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['([^']*)'\]", path):
        return str((metadata.get(match.group(1)) or {}).get(match.group(2), ""))
    if match := re.fullmatch(r"metadata\.(labels|annotations)", path):
        entries: Mapping[str, Any] = metadata.get(match.group(1)) or {}
        return "\n".join(f"{key}={_quote(str(entries[key]))}" for key in sorted(entries))
    fields = {
        "metadata.name": metadata.get("name", ""),
        "metadata.namespace": metadata.get("namespace") or "default",
        "metadata.uid": metadata.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": "127.0.0.1",
        "status.hostIPs": "127.0.0.1",
        "status.podIP": identity.address,
        "status.podIPs": identity.address,
    }
    if path not in fields:
        raise Missing(f"field {path!r} of a pod cannot be read; known are {', '.join(fields)}")
    return str(fields[path])


def read_resource(reference: Json, container: Json, pod: Json, machine: Machine) -> str:
    """Return a request or limit, in units of `divisor`, rounded up; without a limit it is the machine's."""
    if name := reference.get("containerName"):
        spec = pod.get("spec") or {}
        every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        container = next((other for other in every if other.get("name") == name), {})
    group, _, resource = str(reference.get("resource", "")).partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(group) or {}).get(resource)
    if amount is None and group == "requests":
        amount = (resources.get("limits") or {}).get(resource)
    if amount is None and group == "limits":
        amount = {"cpu": machine.cpus, "memory": machine.memory_bytes}.get(resource)
    divisor = reference.get("divisor") or "1"
    try:
        nanos = parse_quantity(str(amount or 0)).nanos
        unit = parse_quantity(str(divisor)).nanos or 10**9
    except QuantityError as error:
        raise Missing(f"{reference.get('resource')}: {error}") from error
    return str(-(-nanos // unit))


def build_names(host_names: Sequence[str], subdomain: str, namespace: str) -> dict[str, str]:
    """Return every way to write the address of a pod of this job -> its loopback address, from 127.1.0.1 on.

    Not from 127.0.1.1 on: that is the machine's own host name on Debian, and MPICH takes it for "here".
    Source: spec 02 section 14.3 (names), local-runs recipe (addresses).
    """
    names: dict[str, str] = {}
    for number, host in enumerate(host_names):
        row, place = divmod(number, 254)
        address = f"127.{1 + row // 256}.{row % 256}.{1 + place}"
        for name in list_names(host, subdomain, namespace):
            names[name] = address
    return names


def list_names(host: str, subdomain: str, namespace: str) -> tuple[str, ...]:
    """Return the names by which a pod is known, the one that endpoints use first."""
    if not subdomain:
        return (host,)
    full = f"{host}.{subdomain}"
    service = f"{full}.{namespace}.svc"
    return full, host, f"{full}.{namespace}", service, f"{service}.cluster.local"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _get_loopback(machine: Machine) -> str:
    return "lo" if machine.is_linux else "lo0"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) > 0 else None
