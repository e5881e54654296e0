"""What to do next, for each reason that a cause can have: one table, so that `explain` and docs agree."""

from __future__ import annotations

from typing import Final

from trainwright.control.problem import (
    AUTHORITY_UNKNOWN,
    CLAIMS_WOULD_BE_DELETED,
    COSCHEDULING_NOT_INSTALLED,
    JOB_SET_NOT_INSTALLED,
    NAME_TAKEN,
    NATIVE_GANGS_NOT_SERVED,
    RENDER_FAILED,
    RUNTIME_NOT_FOUND,
    SNAPSHOT_LOST,
    SNAPSHOT_UNUSABLE,
    VOLCANO_NOT_INSTALLED,
)
from trainwright.control.seen import KIND_NOT_SERVED

HINTS: Final[dict[str, str]] = {
    # TrainJob
    "Suspended": "resume it: `trainwright resume NAME`, or set spec.suspend to false",
    "Stopped": "create the job again under another name, or delete it first, to run it once more",
    "DeadlineExceeded": "raise spec.activeDeadlineSeconds, or find out below why the job was slow",
    # Queue
    "WaitingForQueue": (
        "the queue decides when it runs: see the Workload that the TrainJob owns; where there is none, Kueue "
        "is not installed or does not know TrainJobs"
    ),
    "WaitingForAdmissionCheck": "there is quota; whoever answers the admission check has to agree",
    "QueueNotFound": (
        "create the queue, or name one that exists in the label kueue.x-k8s.io/queue-name of the job"
    ),
    "QueueInactive": (
        "whoever administers the queue has to start it: see the conditions of the LocalQueue and its "
        "ClusterQueue (stopPolicy, missing flavors)"
    ),
    "Inadmissible": "the queue cannot take the job as it is: change what the message names",
    "NotStarted": (
        "Kueue starts only jobs that its webhook saw when they were made: delete the job and create it again"
    ),
    "RuntimeDeleted": (
        "make the runtime again under that name, and Kueue starts the job; or delete the TrainJob: its quota "
        "is in use until then"
    ),
    "Preempted": (
        "it is queued again and goes on when there is room: save checkpoints, or give it a higher priority "
        "(label kueue.x-k8s.io/priority-class)"
    ),
    "PodsReadyTimeout": (
        "its pods were not ready within the time that Kueue gives (waitForPodsReady, initializers included): "
        "see why in the events of the namespace"
    ),
    "Deactivated": "set spec.active of its Workload to true to queue it again",
    "AdmissionCheck": "an admission check took its consent back: see the Workload",
    "NodeFailures": "nodes of the job failed: it is queued again and goes on from its last checkpoint",
    # Runtime
    RUNTIME_NOT_FOUND: (
        "install the runtime, or name one that exists in spec.runtimeRef (see `trainwright runtimes`)"
    ),
    SNAPSHOT_UNUSABLE: "restore the ConfigMap, or delete it to take the runtime as it is now",
    SNAPSHOT_LOST: "restore the ConfigMap from a backup, or delete the TrainJob and create it again",
    RENDER_FAILED: "correct the field in the runtime, or in the TrainJob while it is suspended",
    AUTHORITY_UNKNOWN: (
        "whoever runs the operator has to put the CA of its certificate into the Secret, or turn the feature "
        "gate TrainJobStatus off; the job goes on by itself then"
    ),
    "TrainingRuntimeNotSupported": (
        "spec.runtimeRef must name a TrainingRuntime or ClusterTrainingRuntime of trainer.kubeflow.org"
    ),
    # JobSet
    NAME_TAKEN: "delete or rename the other JobSet, or create the TrainJob under another name",
    CLAIMS_WOULD_BE_DELETED: (
        "undo the change of the job; or save the data, delete the JobSet yourself and let it be made anew"
    ),
    JOB_SET_NOT_INSTALLED: "install JobSet in the cluster; the job goes on by itself when it is there",
    COSCHEDULING_NOT_INSTALLED: (
        "install the coscheduling scheduler (scheduler-plugins) with its CRDs, or use a runtime without "
        "podGroupPolicy.coscheduling; the job goes on by itself when it is there"
    ),
    VOLCANO_NOT_INSTALLED: (
        "install Volcano, or use a runtime without podGroupPolicy.volcano; the job goes on by itself when it "
        "is there"
    ),
    NATIVE_GANGS_NOT_SERVED: (
        "serve scheduling.k8s.io in the version of podGroupPolicy.native (feature gates GenericWorkload and "
        "GangScheduling of Kubernetes 1.36), or use a runtime without it"
    ),
    "MissingPackage": (
        "install the package in the environment of trainwright: the job goes on by itself when it is there"
    ),
    KIND_NOT_SERVED: "install what brings the kind; the job goes on by itself when it is there",
    "WaitingForCleanup": (
        "it goes by itself; if it does not, look at its finalizers and at the pods on their nodes, and "
        "delete a Job that was left an orphan"
    ),
    "WaitingForPods": "it goes on when they have ended, at the latest after their grace period",
    "WaitingForJobs": (
        "it goes on when JobSet has made them, in a moment; if it does not, see whether JobSet's controller "
        "runs, and whether a quota of the namespace counts Jobs"
    ),
    "FailedJobs": "see the logs of the job: `trainwright logs NAME`",
    "PodsGone": (
        "pods were deleted or evicted without a trace: look at the events of the namespace and its nodes"
    ),
    "ReachedMaxRestarts": "see the logs of the last attempt: `trainwright logs NAME`",
    "FailJobSetFailurePolicyAction": "a rule of the failure policy ended it: see the logs of the job",
    # The local engine
    "SupervisorLost": "submit the job again; where it was killed for memory, ask for less or free some",
    "SupervisorStopped": "submit the job again to run it once more",
    # Job: the API server refuses pods
    "QuotaExceeded": "wait for others to end, ask for less, or have the ResourceQuota raised",
    "QuotaNeedsRequests": (
        "set spec.trainer.resourcesPerNode: the quota counts a resource that the pod does not name"
    ),
    "LimitRangeViolated": (
        "change spec.trainer.resourcesPerNode so that it fits the LimitRange of the namespace"
    ),
    "PodSecurityViolated": (
        "set the securityContext that the namespace asks for, in the runtime or a runtime patch"
    ),
    "ServiceAccountNotFound": "create the service account, or name one that exists in the runtime",
    "FailedCreate": "the API server refuses the pods: change what its message names",
    # Pod
    "Evicted": "ask for the resource that ran out (memory, ephemeral-storage), or write less to local disk",
    "NodeLost": "the node does not answer: look at it, and delete it from the cluster if it is gone",
    "NodeShutdown": (
        "the node was shut down: use failurePolicy.maxRestarts and checkpoints so that training goes on"
    ),
    "UnexpectedAdmissionError": (
        "the node refuses the pod, often for a device that is broken or taken: look at it"
    ),
    "DisruptionTarget": (
        "the pod had to make room: use failurePolicy.maxRestarts and checkpoints so that training goes on"
    ),
    "PreemptionByScheduler": (
        "pods of a higher priority needed the room: give the job a priorityClassName, or use "
        "failurePolicy.maxRestarts and checkpoints so that training goes on"
    ),
    "EvictionByEvictionAPI": (
        "somebody drains the node, or evicted the pod: use failurePolicy.maxRestarts and checkpoints so "
        "that training goes on"
    ),
    "DeletionByTaintManager": (
        "the node was tainted: tolerate the taint, or use failurePolicy.maxRestarts and checkpoints so that "
        "training goes on elsewhere"
    ),
    "DeletionByPodGC": (
        "the node is gone: use failurePolicy.maxRestarts and checkpoints so that training goes on elsewhere"
    ),
    "TerminationByKubelet": (
        "the node ended the pod (shutdown, or a resource that ran out): use failurePolicy.maxRestarts and "
        "checkpoints so that training goes on elsewhere"
    ),
    "PodDeleted": (
        "somebody or some controller deleted the pod, and left no reason: the API server's audit log tells "
        "who; use failurePolicy.maxRestarts to survive it"
    ),
    "Unschedulable": (
        "no machine fits: compare the request with what the nodes have, and selector and tolerations"
    ),
    "SchedulingGated": "who set the scheduling gate has to lift it (for Kueue's topology: see the Workload)",
    "GangNotComplete": (
        "all pods have to fit at once: wait for room, ask for less, or have the scheduler's queue raised"
    ),
    "FailedMount": "create the Secret, ConfigMap or claim that the volume names, or correct the name",
    "FailedAttachVolume": "the volume cannot be attached: see whether another node still holds it",
    "FailedCreatePodSandBox": (
        "the node cannot set the pod up: look at its network plugin and container runtime"
    ),
    # Node
    "NodeNotReady": ("look at the node; where it is gone for good, delete it: its pods are given up at once"),
    # Container
    "ImagePullBackOff": "check the image's name, tag and registry, and imagePullSecrets for a private one",
    "InvalidImageName": "correct the image's name",
    "ErrImageNeverPull": "the image is not on the node: load it there, or change imagePullPolicy",
    "CreateContainerConfigError": (
        "create the ConfigMap or Secret (or the key in it) that the environment names"
    ),
    "CreateContainerError": "the container cannot be made: see its message",
    "RunContainerError": "the container cannot be started: see its message",
    "CrashLoopBackOff": (
        "the program fails again and again: see `trainwright logs NAME`; restartPolicy Never and "
        "backoffLimit 0 "
        "show a failure at once"
    ),
    "OOMKilled": "ask for more memory in spec.trainer.resourcesPerNode, or use a smaller batch",
    "StartError": "the program of spec.trainer.command is not in the image, or not on PATH",
    "CommandNotFound": "the command is not in the image, or not on PATH",
    "CommandNotExecutable": "make the command executable, or start it through its interpreter",
    "SegmentationFault": (
        "native code crashed: compare the versions of driver, CUDA and libraries in the image"
    ),
    "Killed": (
        "something outside ended it with SIGKILL: look for memory pressure or an operator's action "
        "on the node"
    ),
    "Terminated": "something outside asked it to end (SIGTERM): a drain, a preemption, or a deadline",
    "ProbeFailed": (
        "give the program more time (initialDelaySeconds, failureThreshold of the probe), or leave the probe "
        "out: a training job needs none"
    ),
    "KilledBySignal": "the program ended by a signal: see the last log lines",
    "NonZeroExit": "the program reports an error: see its last log lines (`trainwright logs NAME`)",
}

_DEFAULT: Final = "see the message"
_REFUSED: Final = (
    "the API server refuses the object: change what its message names; it is tried again by itself"
)


def get_hint(reason: str, layer: str) -> str:
    """Return what to do about a cause; for a reason of an API server, by the layer that it stands in."""
    return HINTS.get(reason) or (_REFUSED if layer in ("JobSet", "Job", "TrainJob") else _DEFAULT)
