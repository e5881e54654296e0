"""What lets the pods that train report their progress to the operator (feature gate TrainJobStatus).

A setting of the operator, not of a job: whoever renders says where the server is, or that there is none. The
pods get variables and a projected volume with a token, which is good for reports about this job and nothing
else, and with the authority that vouches for the server. Source: spec 02 section 10, spec 03 section 1.2.
"""

from __future__ import annotations

import msgspec

from trainwright.api.constants import ANCESTOR_TRAINER, PROGRESS_CA_ENV, PROGRESS_TOKEN_ENV, PROGRESS_URL_ENV
from trainwright.api.meta import Json
from trainwright.api.progress import (
    AUTHORITY_KEY,
    AUTHORITY_LABEL,
    AUTHORITY_SUFFIX,
    FOLDER,
    TOKEN_FILE,
    TOKEN_SECONDS,
    TOKEN_VOLUME,
    build_audience,
    build_report_path,
)
from trainwright.api.trainjob import TrainJob
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.template.layout import JobLayout


class ProgressServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where pods report: `https://host:port`, and the CA certificates that vouch for it, as PEM.

    Without certificates the ConfigMap that holds them is not made: somebody else sees to it.
    """

    url: str
    authority_pem: str | None = None


def build_progress_contribution(job: TrainJob, layout: JobLayout, server: ProgressServer) -> Contribution:
    """Return what the job needs in order to report.

    Variables and mount are for all containers of the first step with the trainer label, but for its init
    containers. The ConfigMap is there even for a job without such a step, as the peer makes it.
    """
    objects = () if server.authority_pem is None else (build_authority(job, server.authority_pem),)
    trainer = next((pod_set for pod_set in layout.pod_sets if pod_set.ancestor == ANCESTOR_TRAINER), None)
    if trainer is None:
        return Contribution(objects=objects)
    addition = ContainerAddition(env=_build_env(job, server), volume_mounts=(_MOUNT,))
    pods = PodAddition(
        containers={container["name"]: addition for container in trainer.containers},
        volumes=(_build_volume(job),),
    )
    return Contribution(pods={trainer.name: pods}, objects=objects)


def build_authority(job: TrainJob, pem: str) -> Json:
    """Return the ConfigMap of the job with the certificates, in no namespace yet."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _authority_name(job), "labels": {AUTHORITY_LABEL: "true"}},
        "data": {AUTHORITY_KEY: pem},
    }


_MOUNT: Json = {"name": TOKEN_VOLUME, "mountPath": FOLDER, "readOnly": True}


def _build_env(job: TrainJob, server: ProgressServer) -> tuple[Json, ...]:
    path = build_report_path(job.metadata.namespace or "", job.metadata.name)
    values = {
        PROGRESS_URL_ENV: f"{server.url}{path}",
        PROGRESS_CA_ENV: f"{FOLDER}/{AUTHORITY_KEY}",
        PROGRESS_TOKEN_ENV: f"{FOLDER}/{TOKEN_FILE}",
    }
    return tuple({"name": name, "value": value} for name, value in values.items())


def _build_volume(job: TrainJob) -> Json:
    token = {
        "path": TOKEN_FILE,
        "expirationSeconds": TOKEN_SECONDS,
        "audience": build_audience(job.metadata.namespace or "", job.metadata.name),
    }
    authority = {
        "name": _authority_name(job),
        "items": [{"key": AUTHORITY_KEY, "path": AUTHORITY_KEY}],
    }
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def _authority_name(job: TrainJob) -> str:
    return f"{job.metadata.name}{AUTHORITY_SUFFIX}"
