"""Whether the CustomResourceDefinitions on the cluster know what this operator writes.

An API server drops fields that a schema does not have, without a word: an operator above older definitions
would write its status again and again and never see it. So it does not begin. Newer definitions, and those of
the peer's that are as new, do no harm. Where they are not installed at all it waits for them.
Source: cases B100 and B101.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from trainwright.api.constants import API_VERSION, CLUSTER_TRAINING_RUNTIME, TRAIN_JOB, TRAINING_RUNTIME
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import TrainJobSpec, TrainJobStatus
from trainwright.cluster.kube.errors import ApiError, ForbiddenError, NotFoundError
from trainwright.cluster.kube.informer import Backoff
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.resources import RESOURCES, build_path
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import TargetUnreachable, UserError
from trainwright.manifests.names import CRD_NAMES

log = structlog.get_logger(__name__)

# What of each kind is read or written, by the part of the object that it stands in.
_NEEDED: Final[Mapping[str, Mapping[str, type[msgspec.Struct]]]] = {
    TRAIN_JOB: {"spec": TrainJobSpec, "status": TrainJobStatus},
    TRAINING_RUNTIME: {"spec": RuntimeSpec},
    CLUSTER_TRAINING_RUNTIME: {"spec": RuntimeSpec},
}

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


class SchemaOutdated(UserError):
    """A definition on the cluster lacks fields that this operator needs."""

    def __init__(self, name: str, missing: list[str]) -> None:
        self.name = name
        self.missing = missing
        super().__init__(
            f"CustomResourceDefinition {name} on this cluster is older than this operator: it lacks "
            f"{', '.join(missing)}; apply the definitions of this version first "
            "(`trainwright install --apply --replace`; TrainJobs go on)"
        )


def find_missing_fields(kind: str, crd: Json) -> list[str]:
    """Return the fields of spec and status that a definition lacks; all, where it has no schema."""
    _, _, wanted = API_VERSION.partition("/")
    schema: Json = {}
    for version in crd["spec"]["versions"]:
        if version["name"] == wanted and version.get("served"):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return [
        f"{part}.{name}"
        for part, struct in _NEEDED[kind].items()
        for name in _list_fields(struct)
        if name not in _get_properties(_get_properties(schema).get(part))
    ]


async def check_schemas(transport: Transport) -> None:
    """Return once all definitions are there and know what we need. Raises SchemaOutdated.

    An operator whose rights do not reach them (those of one namespace) goes on without having looked.
    """
    for kind, name in CRD_NAMES.items():
        crd = await _wait_for_crd(transport, name)
        if crd is None:
            return
        if missing := find_missing_fields(kind, crd):
            raise SchemaOutdated(name, missing)


async def _wait_for_crd(transport: Transport, name: str) -> Json | None:
    """Return the definition once there is one; None where we may not read it."""
    request = Request(method="GET", path=build_path(RESOURCES["CustomResourceDefinition"], name=name))
    backoff = Backoff()
    while True:
        try:
            found: Json = _DECODER.decode(await transport.request(request))
            return found
        except ForbiddenError:
            log.info("definitions are not checked: no right to read them", definition=name)
            return None
        except NotFoundError:
            problem = "it is not installed; `trainwright install --apply` does that"
        except (ApiError, TargetUnreachable) as error:
            problem = str(error)
        pause = backoff.next_pause()
        log.warning(
            "definition cannot be read", definition=name, problem=problem, retry_seconds=round(pause, 2)
        )
        await asyncio.sleep(pause)


def _list_fields(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def _get_properties(schema: Json | None) -> Json:
    return (schema or {}).get("properties") or {}
