"""Simulated nodes: machines that exist only in the API server, whose pods run, end and go by rules.

For tests with more pods or more kinds of machines than one real node has. kwok plays every kubelet; nothing
is executed. What a pod does is said by its annotations, so a TrainJob's runtime or patches decide it:

    simulated/exit-code      the pod ends with this code; without it, it runs until it is deleted
    simulated/runs-for       how long it runs before that, as `2s` or `500ms`; at once without it
    simulated/message        its last words
    simulated/ends-after     how long it takes to go once it is deleted; at once without it

There is no node controller behind it: a node is Ready for as long as it exists, without heartbeats.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import yaml

from kube.control_plane import ControlPlane, Variant

EXIT_CODE = "simulated/exit-code"
RUNS_FOR = "simulated/runs-for"
MESSAGE = "simulated/message"
ENDS_AFTER = "simulated/ends-after"

CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110"}
# For a control plane that is to have simulated nodes: who schedules, and who plays the kubelets.
SIMULATED = Variant(
    users={
        "system:kube-scheduler": ("test-kube-scheduler", "system:authenticated"),
        "kwok": ("test-kwok", "system:masters"),
    }
)

_MARK = "trainwright.test/simulated"


class SimulatedNodes:
    """The kubelets of all simulated nodes of a control plane. Use as a context manager inside the plane's.

    The plane needs the users of `SIMULATED`, and a scheduler (`start_scheduler`).
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def __enter__(self) -> Self:
        """Start kwok; there is no node yet."""
        file = self._plane.folder / "kwok.yaml"
        file.write_text(yaml.safe_dump_all([_CONFIGURATION, *_STAGES]))
        kubeconfig = self._plane.kubeconfig("kwok")
        self._plane.start_program("kwok", "--config", str(file), "--kubeconfig", str(kubeconfig))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End kwok; the nodes stay, without a life."""
        self._plane.stop_program("kwok")

    def add(
        self,
        names: Sequence[str],
        capacity: Mapping[str, str] = CAPACITY,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Add nodes that offer so much each, and wait until pods can be placed on them."""
        for name in names:
            metadata = {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": {_MARK: "true"},
            }
            status = {"capacity": dict(capacity), "allocatable": dict(capacity)}
            self._plane.call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})
        for name in names:
            self._plane.wait_for("kwok", functools.partial(self._is_ready, name))
            # Admission taints every new node as not ready, and there is no controller that takes it back.
            self._plane.call(
                "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json"
            )

    def remove(self, names: Sequence[str]) -> None:
        """Delete nodes; their pods stay as they were, as those of a machine that broke do."""
        for name in names:
            self._plane.call("DELETE", f"/api/v1/nodes/{name}")

    def _is_ready(self, name: str) -> bool:
        status = self._plane.call("GET", f"/api/v1/nodes/{name}").get("status") or {}
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _build_stage(
    name: str, kind: str, when: Sequence[tuple[str, str, Sequence[str]]], **spec: Any
) -> dict[str, Any]:
    """Return a rule: an object for which all of `when` (path, operator, values) is true is changed."""
    expressions = [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in when
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            **spec,
        },
    }


def _after(annotation: str) -> dict[str, Any]:
    """Return the delay that an annotation of the pod names."""
    expression = {"expressionFrom": f'.metadata.annotations["{annotation}"]'}
    return {"durationMilliseconds": 0, "durationFrom": expression}


_CONFIGURATION = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        "manageNodesWithAnnotationSelector": f"{_MARK}=true",
        "nodeLeaseDurationSeconds": 0,
        "podPlayStageParallelism": 16,
        "cidr": "10.128.0.0/9",
    },
}

_NODE_STATUS = """
conditions:
- type: Ready
  status: "True"
  reason: Simulated
  message: this node exists only in the API server
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
addresses:
- type: Hostname
  address: {{ .metadata.name | Quote }}
"""

_RUNNING_STATUS = """
phase: Running
startTime: {{ Now | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
conditions:
{{ range $type := (list "Initialized" "PodReadyToStartContainers" "ContainersReady" "Ready") }}
- type: {{ $type }}
  status: "True"
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ Now | Quote }}
{{ end }}
"""

_ENDED_STATUS = """
phase: PHASE
conditions:
{{ range $type := (list "ContainersReady" "Ready") }}
- type: {{ $type }}
  status: "False"
  reason: PodCompleted
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
{{ $annotations := .metadata.annotations }}
{{ $started := .status.startTime }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{ index $annotations "simulated/exit-code" }}
      reason: REASON
      message: {{ or (index $annotations "simulated/message") "" | Quote }}
      startedAt: {{ $started | Quote }}
      finishedAt: {{ Now | Quote }}
{{ end }}
"""

_ALIVE = (".metadata.deletionTimestamp", "DoesNotExist", ())
_EXIT_CODE_PATH = f'.metadata.annotations["{EXIT_CODE}"]'


def _build_end(name: str, phase: str, reason: str, operator: str) -> dict[str, Any]:
    when = (
        _ALIVE,
        (".status.phase", "In", ("Running",)),
        (_EXIT_CODE_PATH, "Exists", ()),
        (_EXIT_CODE_PATH, operator, ("0",)),
    )
    status = _ENDED_STATUS.replace("PHASE", phase).replace("REASON", reason)
    return _build_stage(name, "Pod", when, delay=_after(RUNS_FOR), next={"statusTemplate": status})


_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_STAGES = (
    _build_stage("node-ready", "Node", [(_READY, "NotIn", ("True",))], next={"statusTemplate": _NODE_STATUS}),
    _build_stage(
        "pod-runs",
        "Pod",
        [_ALIVE, (".status.phase", "In", ("Pending",))],
        next={"statusTemplate": _RUNNING_STATUS},
    ),
    _build_end("pod-succeeds", "Succeeded", "Completed", "In"),
    _build_end("pod-fails", "Failed", "Error", "NotIn"),
    _build_stage(
        "pod-goes",
        "Pod",
        [(".metadata.deletionTimestamp", "Exists", ())],
        delay=_after(ENDS_AFTER),
        next={"finalizers": {"empty": True}, "delete": True},
    ),
)
