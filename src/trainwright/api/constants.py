"""Names, labels, annotations and environment variables.

All of them are part of the wire contract (spec 01 section 1.6, spec 02 section 1) unless a comment says
that they are ours.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "trainer.kubeflow.org"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
TRAIN_JOB: Final = "TrainJob"
TRAINING_RUNTIME: Final = "TrainingRuntime"
CLUSTER_TRAINING_RUNTIME: Final = "ClusterTrainingRuntime"

JOBSET_GROUP: Final = "jobset.x-k8s.io"
JOBSET_API_VERSION: Final = f"{JOBSET_GROUP}/v1alpha2"
JOB_SET: Final = "JobSet"

CONTROLLER_NAME: Final = "trainer.kubeflow.org/trainjob-controller"
MULTIKUEUE_CONTROLLER_NAME: Final = "kueue.x-k8s.io/multikueue"

# Field managers of server-side apply.
FIELD_MANAGER: Final = "trainer"
STATUS_FIELD_MANAGER: Final = "trainer-status"

ANCESTOR_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
ANCESTOR_TRAINER: Final = "trainer"
ANCESTOR_DATASET_INITIALIZER: Final = "dataset-initializer"
ANCESTOR_MODEL_INITIALIZER: Final = "model-initializer"
# Which container each ancestor step must have.
ANCESTOR_CONTAINERS: Final = {
    ANCESTOR_TRAINER: "node",
    ANCESTOR_DATASET_INITIALIZER: "dataset-initializer",
    ANCESTOR_MODEL_INITIALIZER: "model-initializer",
}

NODE: Final = "node"
LAUNCHER: Final = "launcher"
DATASET_INITIALIZER: Final = "dataset-initializer"
MODEL_INITIALIZER: Final = "model-initializer"

INITIALIZER_VOLUME: Final = "initializer"
STORAGE_URI_ENV: Final = "STORAGE_URI"

TRAINER_PORT: Final = 29500

FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
SUPPORT_LABEL: Final = "trainer.kubeflow.org/support"
SUPPORT_DEPRECATED: Final = "deprecated"
WEBHOOK_VALIDATION_LABEL: Final = "trainer.kubeflow.org/webhook-validation"
LEGACY_FINALIZER: Final = "trainer.kubeflow.org/resource-in-use"

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"  # label and annotation of a pod
RANK_FIELD_PATH: Final = f"metadata.annotations['{COMPLETION_INDEX}']"

# Labels (and annotations) that the JobSet controller sets on child Jobs and their pods.
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME: Final = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
BATCH_JOB_NAME: Final = "batch.kubernetes.io/job-name"

# Torch.
PET_NNODES: Final = "PET_NNODES"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_NODE_RANK: Final = "PET_NODE_RANK"
PET_MASTER_ADDR: Final = "PET_MASTER_ADDR"
PET_MASTER_PORT: Final = "PET_MASTER_PORT"

# JAX.
JAX_NUM_PROCESSES: Final = "JAX_NUM_PROCESSES"
JAX_PROCESS_ID: Final = "JAX_PROCESS_ID"
JAX_COORDINATOR_ADDRESS: Final = "JAX_COORDINATOR_ADDRESS"

# TensorFlow.
TF_CONFIG: Final = "TF_CONFIG"
TF_TASK_INDEX: Final = "TF_TASK_INDEX"  # ours: what TF_CONFIG refers to

# Paddle.
PADDLE_JOB_ID: Final = "PADDLE_JOB_ID"
PADDLE_NNODES: Final = "PADDLE_NNODES"
PADDLE_NPROC_PER_NODE: Final = "PADDLE_NPROC_PER_NODE"
PADDLE_RANK: Final = "PADDLE_RANK"
PADDLE_MASTER: Final = "PADDLE_MASTER"
PADDLE_SERVERS_ENDPOINTS: Final = "PADDLE_SERVERS_ENDPOINTS"
PADDLE_TRAINERS_ENDPOINTS: Final = "PADDLE_TRAINERS_ENDPOINTS"
POD_IP: Final = "POD_IP"

# torchrun's elastic rendezvous.
PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"
PET_RDZV_ID: Final = "PET_RDZV_ID"
PET_MAX_RESTARTS: Final = "PET_MAX_RESTARTS"
PET_RDZV_CONF: Final = "PET_RDZV_CONF"
TORCH_DISABLE_SHARE_RDZV_TCP_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

# Slices. All ours.
SLICE_INDEX: Final = "TRAINWRIGHT_SLICE_INDEX"
SLICE_COUNT: Final = "TRAINWRIGHT_SLICE_COUNT"
SLICE_NODES: Final = "TRAINWRIGHT_SLICE_NODES"
SLICE_LEADER: Final = "TRAINWRIGHT_SLICE_LEADER"

# XGBoost.
DMLC_TRACKER_URI: Final = "DMLC_TRACKER_URI"
DMLC_TRACKER_PORT: Final = "DMLC_TRACKER_PORT"
DMLC_TASK_ID: Final = "DMLC_TASK_ID"
DMLC_NUM_WORKER: Final = "DMLC_NUM_WORKER"
DMLC_WORKERS_PER_NODE: Final = "DMLC_WORKERS_PER_NODE"  # ours

# MPI.
MPI_SSH_SUFFIX: Final = "-mpi-ssh-auth"
MPI_HOSTFILE_SUFFIX: Final = "-mpi-hostfile"
SSH_AUTH_SECRET_TYPE: Final = "kubernetes.io/ssh-auth"  # noqa: S105 (the type of a Secret)
SSH_PRIVATE_KEY: Final = "ssh-privatekey"
SSH_PUBLIC_KEY: Final = "ssh-publickey"

# Flux.
FLUX_SCRIPTS_SUFFIX: Final = "-flux-entrypoint"
FLUX_CURVE_SUFFIX: Final = "-flux-curve"
CURVE_CERTIFICATE: Final = "curve.cert"
FLUX_VIEW_IMAGE: Final = "FLUX_VIEW_IMAGE"
FLUX_NETWORK_DEVICE: Final = "FLUX_NETWORK_DEVICE"
FLUX_QUEUE_POLICY: Final = "FLUX_QUEUE_POLICY"
# Ours: where the broker of a pod that shares its machine with others listens.
FLUX_ADDRESS: Final = "TRAINWRIGHT_FLUX_ADDRESS"
FLUX_PORT: Final = "TRAINWRIGHT_FLUX_PORT"

# Progress reports (spec 03 section 1).
PROGRESS_URL_ENV: Final = "KUBEFLOW_TRAINER_SERVER_URL"
PROGRESS_CA_ENV: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
PROGRESS_TOKEN_ENV: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 (the name of a variable that holds a path)

# Ours. Content-addressed runtime snapshots (design.md section 3): ConfigMap `trainer-runtime-<hash>`.
SNAPSHOT_NAME_PREFIX: Final = "trainer-runtime-"
SNAPSHOT_KEY: Final = "runtime"  # the peer's key, in `<trainjob>-runtime-snapshot` as well
PEER_SNAPSHOT_SUFFIX: Final = "-runtime-snapshot"
# Hash of what was rendered into a JobSet that JobSet holds immutable: tells on resume whether the JobSet
# can be kept, without reading it back.
TEMPLATE_HASH_ANNOTATION: Final = "trainer.kubeflow.org/template-hash"
# On a Secret that is rendered without data: which generator fills it, once, when it is created.
GENERATED_DATA_ANNOTATION: Final = "trainer.kubeflow.org/generated-data"
SSH_KEY_GENERATOR: Final = "ssh-key"
CURVE_CERTIFICATE_GENERATOR: Final = "curve-certificate"
# A user asked to end the job for good (`trainwright stop`): value is the RFC 3339 time of the request.
STOP_ANNOTATION: Final = "trainer.kubeflow.org/stop-requested"
# Where a job that runs on this machine was submitted; containers without `workingDir` start there.
WORKING_DIRECTORY_ANNOTATION: Final = "trainer.kubeflow.org/local-working-directory"
# On a Job or pod of a local run: when its deletion began. An API server would say so in
# `metadata.deletionTimestamp`, which the embedded store, as an API server, takes from nobody.
DELETION_ANNOTATION: Final = "trainer.kubeflow.org/deletion-requested"
