"""Gathers what a pod needs from outside its own object, at the moment at which it starts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from trainwright.api.constants import (
    JOB_SET,
    JOBSET_NAME,
    REPLICATED_JOB_NAME,
    TRAIN_JOB,
    TRAINER_PORT,
    WORKING_DIRECTORY_ANNOTATION,
)
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.paths import JobPaths, StatePaths
from trainwright.cluster.port import Cluster
from trainwright.errors import NotFound
from trainwright.runner.controllers.names import build_host_names, get_subdomain
from trainwright.runner.controllers.volume_claims import CLAIM_KIND
from trainwright.runner.executor import PodContext
from trainwright.runner.pods.claim_folders import make_claim_folder
from trainwright.runner.pods.meeting_points import find_hosts_with_own_port, find_ports
from trainwright.runner.pods.training_nodes import find_node_rank, is_trainer_step


class Surroundings(msgspec.Struct, frozen=True):
    """Where a job was submitted or resumed: what its containers inherit."""

    environment: Mapping[str, str]
    working_directory: Path


class PodContexts:
    """Builds the context of each pod of one TrainJob.

    `get_port` gives, of a port and a host's name ("" for the job as a whole), the free one at that moment;
    `trainer_environment` goes to the trainer step alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        paths: StatePaths,
        surroundings: Surroundings,
        get_port: Callable[[int, str], int],
        trainer_environment: Mapping[str, str],
    ) -> None:
        self._cluster = cluster
        self._paths = paths
        self._surroundings = surroundings
        self._get_port = get_port
        self._trainer_environment = trainer_environment

    async def build(self, pod: Json, job: JobPaths, devices: tuple[str, ...]) -> PodContext:
        """Return the context of a pod of this job with these devices."""
        metadata, spec = pod["metadata"], pod["spec"]
        namespace = metadata.get("namespace") or ""
        labels = metadata.get("labels") or {}
        job_set = await self._get_job_set(namespace, labels.get(JOBSET_NAME, ""))
        subdomain = get_subdomain(job_set) if job_set else spec.get("subdomain") or ""
        host = spec.get("hostname") or metadata["name"]
        ports = find_ports(job_set) if job_set else [TRAINER_PORT]
        return PodContext(
            folder=job.pod(metadata["name"]),
            shared_folder=job.shared,
            mount_points=self._paths.mount_points,
            host_names=build_host_names(job_set) if job_set else (host,),
            subdomain=subdomain,
            working_directory=await self._find_working_directory(namespace, job_set),
            environment=self._surroundings.environment,
            config_maps=await self._read_all("ConfigMap", namespace, find_names(spec, "ConfigMap")),
            secrets=await self._read_all("Secret", namespace, find_names(spec, "Secret")),
            claims=await self._make_claims(namespace, spec),
            ports={port: self._get_port(port, "") for port in ports},
            host_ports=self._get_host_ports(job_set, subdomain, ports) if job_set else {},
            node_rank=find_node_rank(job_set, host) if job_set else None,
            devices=devices,
            extra_environment=self._trainer_environment if _is_trainer(job_set, labels) else {},
        )

    def _get_host_ports(
        self, job_set: JobSet, subdomain: str, ports: Iterable[int]
    ) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for port in ports:
            for host in find_hosts_with_own_port(job_set, subdomain, port):
                found.setdefault(host, {})[port] = self._get_port(port, host)
        return found

    async def _find_working_directory(self, namespace: str, job_set: JobSet | None) -> Path:
        """Return where the job was submitted, if it says so, else where its supervisor was started."""
        train_job = await self._find(TRAIN_JOB, namespace, job_set.metadata.name) if job_set else None
        annotations = (train_job or {}).get("metadata", {}).get("annotations") or {}
        submitted = annotations.get(WORKING_DIRECTORY_ANNOTATION)
        return Path(submitted) if submitted else self._surroundings.working_directory

    async def _get_job_set(self, namespace: str, name: str) -> JobSet | None:
        body = await self._find(JOB_SET, namespace, name)
        return parse_object(body, JobSet) if body else None

    async def _read_all(self, kind: str, namespace: str, names: set[str]) -> dict[str, dict[str, bytes]]:
        found = {name: await self._find(kind, namespace, name) for name in sorted(names)}
        return {name: decode_content(body) for name, body in found.items() if body is not None}

    async def _make_claims(self, namespace: str, spec: Json) -> dict[str, Path]:
        return {
            claim: make_claim_folder(
                self._paths, namespace, claim, await self._find(CLAIM_KIND, namespace, claim)
            )
            for claim in sorted(find_claims(spec))
        }

    async def _find(self, kind: str, namespace: str, name: str) -> Json | None:
        try:
            return await self._cluster.get(ObjectKey(kind, namespace, name))
        except NotFound:
            return None


def find_names(spec: Json, kind: str) -> set[str]:
    """Return the names of all ConfigMaps, or of all Secrets, that a pod's volumes and environment name."""
    field = "configMap" if kind == "ConfigMap" else "secret"
    # A volume calls a Secret `secretName`, a source inside a projected volume calls it `name`.
    named = [(source.get(field) or {}) for source in _iterate_volume_sources(spec)]
    for container in iterate_containers(spec):
        named += [source.get(f"{field}Ref") or {} for source in container.get("envFrom") or ()]
        named += [
            (entry.get("valueFrom") or {}).get(f"{field}KeyRef") or {} for entry in container.get("env") or ()
        ]
    return {name for source in named for name in (source.get("name"), source.get("secretName")) if name}


def find_claims(spec: Json) -> set[str]:
    """Return the names of the PersistentVolumeClaims that a pod's spec names."""
    claims = (
        (volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in spec.get("volumes") or ()
    )
    return {claim for claim in claims if claim}


def iterate_containers(spec: Json) -> Iterator[Json]:
    """Yield init containers, then containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def decode_content(body: Json) -> dict[str, bytes]:
    """Return key -> content of a ConfigMap or Secret."""
    if body["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    texts = {key: value.encode() for key, value in (body.get("data") or {}).items()}
    binaries = {key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()}
    return {**texts, **binaries}


def _iterate_volume_sources(spec: Json) -> Iterator[Json]:
    for volume in spec.get("volumes") or ():
        yield volume
        yield from (volume.get("projected") or {}).get("sources") or ()


def _is_trainer(job_set: JobSet | None, labels: Mapping[str, str]) -> bool:
    """Say whether the pod is of the trainer step: its replicated job is labelled so."""
    for replicated_job in job_set.spec.replicated_jobs if job_set else ():
        if replicated_job.name == labels.get(REPLICATED_JOB_NAME):
            return is_trainer_step(replicated_job)
    return False
