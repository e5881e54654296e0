"""Object metadata and conditions, as the Kubernetes API conventions have them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import msgspec

from trainwright.api.markers import LABELS, QUANTITY, bounded

# A JSON object that is passed on as it is, so that fields newer than ours survive.
Json = dict[str, Any]

# An amount as users write it ("500m", "1Gi", 2): exact arithmetic is in `api.quantity`.
QuantityValue = Annotated[
    str | int | float,
    msgspec.Meta(extra={QUANTITY: True}, extra_json_schema={"x-kubernetes-int-or-string": True}),
]

Labels = Annotated[dict[str, str], msgspec.Meta(extra={LABELS: "values"})]
Annotations = Annotated[dict[str, str], msgspec.Meta(extra={LABELS: "keys"})]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NonNegativeInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
NonNegativeInt64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
PositiveInt32 = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
PositiveInt64 = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of everything that goes over the wire: camelCase names, absent fields are left out.

    `None` means absent, which is not the zero value.
    """

    # What strict reading does with fields that the struct does not know: `passed_over` are dropped without a
    # word, `ineffective` with a warning that says what to do instead; with `keeps_unknown` all others are
    # kept, here and in everything inside, else they are errors; `moved` says where to find what was meant.
    passed_over: ClassVar[tuple[str, ...]] = ()
    ineffective: ClassVar[Mapping[str, str]] = {}
    keeps_unknown: ClassVar[bool] = False
    moved: ClassVar[Mapping[str, str]] = {}


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """Who owns an object; deleting the owner deletes it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """What every object carries."""

    passed_over: ClassVar[tuple[str, ...]] = ("managedFields", "selfLink")

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: Int64 | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Labels | None = None
    annotations: Annotations | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


# As metav1.Condition has them.
_CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_CONDITION_REASON = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One observation about an object; `status` is "True", "False" or "Unknown"."""

    type: Annotated[str, bounded(maxLength=316, pattern=_CONDITION_TYPE)]
    status: Annotated[str, bounded(enum=["True", "False", "Unknown"])]
    reason: Annotated[str, bounded(minLength=1, maxLength=1024, pattern=_CONDITION_REASON)]
    message: Annotated[str, bounded(maxLength=32768)]
    last_transition_time: datetime
    observed_generation: Annotated[Int64, bounded(minimum=0)] | None = None


class LabelsAndAnnotations(ApiStruct, frozen=True, kw_only=True):
    """The part of metadata that templates and patches may set."""

    passed_over: ClassVar[tuple[str, ...]] = ("creationTimestamp",)

    labels: Labels | None = None
    annotations: Annotations | None = None


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """Which object: kind, namespace (empty for cluster-scoped kinds) and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def build_owner_reference(api_version: str, kind: str, meta: ObjectMeta) -> OwnerReference:
    """Return the controlling owner reference to the object with this metadata, which must have a uid."""
    if meta.uid is None:
        raise ValueError(f"{kind} {meta.name!r} has no uid yet")
    return OwnerReference(
        api_version=api_version,
        kind=kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_controlled_by(meta: ObjectMeta, owner: ObjectMeta) -> bool:
    """Say whether `owner` is the controlling owner, by uid."""
    return any(ref.controller and ref.uid == owner.uid for ref in meta.owner_references or ())


def truncate_to_seconds(moment: datetime) -> datetime:
    """Return the moment in UTC with the second as its finest unit, as metav1.Time stores it."""
    return moment.astimezone(UTC).replace(microsecond=0)
