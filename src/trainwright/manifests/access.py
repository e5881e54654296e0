"""Who may do what: the operator, and people by the roles that an administrator gives them.

The operator has exactly what it sends. Rights that a name can narrow (its lease, its certificate, the two
webhook configurations) are narrowed by it. Of Secrets, which hold keys of jobs besides its certificate, it
may make new ones and read one that it names. Where it watches one namespace, it has the rights to what lies
in a namespace there and nowhere else, and so have people.
Source: spec 01 section 3.11, spec 03 section 3.5.
"""

from __future__ import annotations

from typing import Any, Final

from trainwright.api.constants import GROUP, JOBSET_GROUP
from trainwright.api.kueue import KUEUE_GROUP
from trainwright.api.meta import Json
from trainwright.manifests.names import (
    CERTIFICATE_SECRET,
    CRD_NAMES,
    LEASE,
    MUTATING_CONFIGURATION,
    OPERATOR,
    OPERATOR_JOBS,
    PUBLIC_CONFIG_MAP,
    VALIDATING_CONFIGURATION,
)
from trainwright.manifests.settings import InstallSettings, build_object, build_operator_subject

_RBAC: Final = "rbac.authorization.k8s.io"
_RBAC_VERSION: Final = f"{_RBAC}/v1"
_READ: Final = ("get", "list", "watch")
_AGGREGATE: Final = "rbac.authorization.kubeflow.org/aggregate-to"
_AGGREGATE_TO_BUILTIN: Final = f"{_RBAC}/aggregate-to"
_EVERYBODY: Final[Json] = {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}

VIEW, EDIT, ADMIN = (f"kubeflow-trainer-{role}" for role in ("view", "edit", "admin"))
VIEW_CLUSTER_RUNTIMES: Final = "kubeflow-trainer-view-cluster-runtimes"

ACCESS_KINDS: Final = ("RoleBinding", "ClusterRoleBinding", "Role", "ClusterRole")
# What roles and their bindings are called, whatever the settings.
ACCESS_NAMES: Final = frozenset(
    {OPERATOR, OPERATOR_JOBS, VIEW, EDIT, ADMIN, VIEW_CLUSTER_RUNTIMES, PUBLIC_CONFIG_MAP}
)


def _rule(group: str, resources: str, *verbs: str, names: tuple[str, ...] = ()) -> Json:
    rule: Json = {"apiGroups": [group], "resources": resources.split(), "verbs": sorted(verbs)}
    return {**rule, "resourceNames": sorted(names)} if names else rule


# To jobs and what they consist of, wherever the operator watches.
OPERATOR_JOB_RULES: Final[tuple[Json, ...]] = (
    # Snapshots of runtimes, of which the peer's are read, and what jobs have beside their JobSets.
    _rule("", "configmaps", *_READ, "create", "delete", "patch"),
    # Keys of jobs are made once. They are neither listed nor watched, so that none is kept in memory.
    _rule("", "secrets", "create", "get"),
    _rule("", "pods", *_READ),
    _rule("", "events", *_READ, "create", "patch"),
    # Unfinished Jobs of a suspended JobSet are made anew.
    _rule("batch", "jobs", *_READ, "delete"),
    _rule(JOBSET_GROUP, "jobsets", *_READ, "create", "delete", "patch"),
    # Of gang schedulers that a runtime's policy names: applied, read for what keeps a gang waiting, deleted
    # after the last pod.
    _rule("scheduling.x-k8s.io", "podgroups", *_READ, "create", "delete", "patch"),
    _rule("scheduling.volcano.sh", "podgroups", *_READ, "create", "delete", "patch"),
    _rule("scheduling.k8s.io", "podgroups", "get", "create", "patch"),
    # Why a job waits in its queue.
    _rule(KUEUE_GROUP, "workloads", *_READ),
    _rule(GROUP, "trainjobs", *_READ, "delete"),
    # Finalizers that older versions of the peer left behind are taken away.
    _rule(GROUP, "trainingruntimes", *_READ, "patch"),
    _rule(GROUP, "trainjobs/status", "get", "patch"),
    # Asked for where owners may only be set by who may delete them (OwnerReferencesPermissionEnforcement).
    _rule(GROUP, "trainjobs/finalizers", "update"),
)

# To what lies in no namespace.
OPERATOR_CLUSTER_RULES: Final[tuple[Json, ...]] = (
    # As with the runtimes of namespaces.
    _rule(GROUP, "clustertrainingruntimes", *_READ, "patch"),
    # Whether they know what this operator writes.
    _rule("apiextensions.k8s.io", "customresourcedefinitions", "get", names=tuple(CRD_NAMES.values())),
    _rule(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        *_READ,
        "update",
        names=(MUTATING_CONFIGURATION,),
    ),
    _rule(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        *_READ,
        "update",
        names=(VALIDATING_CONFIGURATION,),
    ),
    # Who asks for metrics, and whose pod reports progress.
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
)

OPERATOR_RULES: Final = (*OPERATOR_JOB_RULES, *OPERATOR_CLUSTER_RULES)

# In the operator's own namespace.
OPERATOR_NAMESPACE_RULES: Final[tuple[Json, ...]] = (
    _rule("", "secrets", *_READ, "update", names=(CERTIFICATE_SECRET,)),
    _rule("coordination.k8s.io", "leases", *_READ, "update", names=(LEASE,)),
    _rule("coordination.k8s.io", "leases", "create"),
)

# What `explain` and `logs` look at.
_READ_CHILDREN: Final[tuple[Json, ...]] = (
    _rule("", "pods pods/log events", *_READ),
    _rule("batch", "jobs", *_READ),
    _rule(JOBSET_GROUP, "jobsets", *_READ),
    _rule(KUEUE_GROUP, "workloads", *_READ),
)
_EDIT_RULES: Final[tuple[Json, ...]] = (
    _rule(GROUP, "trainjobs trainingruntimes", *_READ, "create", "delete", "patch", "update"),
    *_READ_CHILDREN,
    # The code that `run` sends along; what it cannot use after all, it takes away again.
    _rule("", "configmaps", "create", "delete", "get", "patch"),
)
_VIEW_RULES: Final[tuple[Json, ...]] = (
    _rule(GROUP, "trainjobs trainingruntimes", *_READ),
    *_READ_CHILDREN,
)


def build_operator_access(settings: InstallSettings) -> list[Json]:
    """Return the service account of the operator and its rights."""
    subjects = [build_operator_subject(settings)]
    here, watched = settings.namespace, settings.watch_namespace
    objects = [
        build_object("v1", "ServiceAccount", OPERATOR, here),
        _build_role("ClusterRole", OPERATOR, OPERATOR_RULES if watched is None else OPERATOR_CLUSTER_RULES),
        _build_binding("ClusterRole", OPERATOR, subjects),
        _build_role("Role", OPERATOR, OPERATOR_NAMESPACE_RULES, here),
        _build_binding("Role", OPERATOR, subjects, here),
    ]
    if watched is not None:
        objects += [
            _build_role("Role", OPERATOR_JOBS, OPERATOR_JOB_RULES, watched),
            _build_binding("Role", OPERATOR_JOBS, subjects, watched),
        ]
    return objects


def build_user_access(settings: InstallSettings) -> list[Json]:
    """Return the roles of people, and what everybody may read.

    Those for the whole cluster add themselves to Kubernetes' own admin, edit and view, and to those of a
    Kubeflow platform. Those of one namespace cannot: whoever shall have them is bound to them.
    """
    if settings.watch_namespace is None:
        objects = _build_aggregated_roles()
    else:
        objects = [
            _build_role("Role", EDIT, _EDIT_RULES, settings.watch_namespace),
            _build_role("Role", VIEW, _VIEW_RULES, settings.watch_namespace),
        ]
    objects += [
        _build_role("ClusterRole", VIEW_CLUSTER_RUNTIMES, (_rule(GROUP, "clustertrainingruntimes", *_READ),))
    ]
    if settings.public_read:
        read_version = (_rule("", "configmaps", *_READ, names=(PUBLIC_CONFIG_MAP,)),)
        objects += [
            _build_binding("ClusterRole", VIEW_CLUSTER_RUNTIMES, [_EVERYBODY]),
            _build_role("Role", PUBLIC_CONFIG_MAP, read_version, settings.namespace),
            _build_binding("Role", PUBLIC_CONFIG_MAP, [_EVERYBODY], settings.namespace),
        ]
    return objects


def _build_aggregated_roles() -> list[Json]:
    return [
        _build_aggregated(
            ADMIN,
            (),
            {f"{_AGGREGATE}-kubeflow-admin": "true"},
            selector={f"{_AGGREGATE}-{ADMIN}": "true"},
        ),
        _build_aggregated(
            EDIT,
            _EDIT_RULES,
            {
                f"{_AGGREGATE}-kubeflow-edit": "true",
                f"{_AGGREGATE}-{ADMIN}": "true",
                f"{_AGGREGATE_TO_BUILTIN}-admin": "true",
                f"{_AGGREGATE_TO_BUILTIN}-edit": "true",
            },
        ),
        _build_aggregated(
            VIEW,
            _VIEW_RULES,
            {
                f"{_AGGREGATE}-kubeflow-view": "true",
                f"{_AGGREGATE}-{VIEW}": "true",
                f"{_AGGREGATE_TO_BUILTIN}-view": "true",
            },
        ),
    ]


def _build_role(kind: str, name: str, rules: tuple[Json, ...], namespace: str | None = None) -> Json:
    return {**build_object(_RBAC_VERSION, kind, name, namespace), "rules": list(rules)}


def _build_aggregated(
    name: str, rules: tuple[Json, ...], labels: dict[str, str], selector: dict[str, str] | None = None
) -> Json:
    role = _build_role("ClusterRole", name, rules)
    metadata = {**role["metadata"], "labels": {**role["metadata"]["labels"], **labels}}
    if selector is None:
        return {**role, "metadata": metadata}
    # The rules of such a role are collected by Kubernetes, and are its own.
    collected = {name: value for name, value in role.items() if name != "rules"}
    return {
        **collected,
        "metadata": metadata,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": selector}]},
    }


def _build_binding(
    role_kind: str, role: str, subjects: list[dict[str, Any]], namespace: str | None = None
) -> Json:
    return {
        **build_object(_RBAC_VERSION, f"{role_kind}Binding", role, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": subjects,
    }
