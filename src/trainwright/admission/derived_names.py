"""The names that Kubernetes objects of a TrainJob will have, and whether they fit.

A name that is too long is refused by JobSet or by the API server long after the TrainJob was taken, where
nobody sees it. So the longest of each kind is worked out from the runtime and the number of nodes.
Source: spec 02 sections 3.8, 14.3 and 14.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from trainwright.admission.verdict import refuse
from trainwright.api.meta import Json
from trainwright.api.names import MAX_LABEL
from trainwright.field_errors import FieldError, Rule
from trainwright.template.pod_sets import PodSet

_RANDOM_SUFFIX: Final = "-xxxxx"  # five characters that the Job controller chooses


class DerivedName(msgspec.Struct, frozen=True, kw_only=True):
    """A name made of the TrainJob's: `prefix`, the TrainJob's name as often as `uses` says, and `rest`."""

    what: str
    prefix: str = ""
    rest: str = ""
    uses: int = 1

    def build(self, job_name: str) -> str:
        """Return the name for a TrainJob of this name."""
        return f"{self.prefix}{'.'.join([job_name + self.rest] + [job_name] * (self.uses - 1))}"

    @property
    def longest_job_name(self) -> int:
        """How many characters the TrainJob's name may have."""
        return (MAX_LABEL - len(self.prefix) - len(self.rest) - (self.uses - 1)) // self.uses


def find_name_error(job_name: str, spec: Json, pod_sets: tuple[PodSet, ...]) -> FieldError | None:
    """Return one error, about the name that leaves the least room, where any derived name is too long.

    `spec` is the JobSet spec and `pod_sets` its counted pods. It does not speak of a name that is too long by
    itself.
    """
    tightest = min(list_derived_names(spec, pod_sets), key=lambda name: name.longest_job_name, default=None)
    if tightest is None or len(job_name) <= tightest.longest_job_name or len(job_name) > MAX_LABEL:
        return None
    full = tightest.build(job_name)
    if tightest.longest_job_name < 1:
        remedy = "no TrainJob name is short enough; the runtime needs shorter names of replicated jobs"
    else:
        remedy = f"with this runtime use a name of at most {tightest.longest_job_name} characters"
    size = f"{len(full)} characters where {MAX_LABEL} are allowed"
    detail = f"{tightest.what} would be called {full}, {size}; {remedy}"
    return refuse("metadata.name", Rule.TOO_LONG, detail, job_name)


def list_derived_names(spec: Json, pod_sets: tuple[PodSet, ...]) -> Iterator[DerivedName]:
    """Yield the longest name of each kind: Jobs, pods, volume claims, the coordinator's address."""
    for pod_set in pod_sets:
        last_job = f"-{pod_set.name}-{max(pod_set.replicas - 1, 0)}"
        yield DerivedName(what=f"the Job of {pod_set.name}", rest=last_job)
        if pod_set.completions is not None:
            last_pod = f"{last_job}-{max(pod_set.completions - 1, 0)}{_RANDOM_SUFFIX}"
            yield DerivedName(what=f"the pods of {pod_set.name}", rest=last_pod)
    for policy in spec.get("volumeClaimPolicies") or ():
        for template in policy.get("templates") or ():
            claim = (template.get("metadata") or {}).get("name") or ""
            yield DerivedName(what=f"the volume claim {claim}", prefix=f"{claim}-")
    if coordinator := spec.get("coordinator"):
        indexes = f"{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}"
        address = f"-{coordinator['replicatedJob']}-{indexes}"
        subdomain = (spec.get("network") or {}).get("subdomain")
        # The address is the value of a label.
        if subdomain:
            yield DerivedName(what="the coordinator", rest=f"{address}.{subdomain}")
        else:
            yield DerivedName(what="the coordinator", rest=address, uses=2)
