"""Writing the counts of pod sets back into the JobSet (spec 02 sections 3.2 and 3.3)."""

from __future__ import annotations

from trainwright.api.constants import ANCESTOR_CONTAINERS
from trainwright.api.meta import Json
from trainwright.template.pod_sets import PodSet
from trainwright.template.rewrite import rewrite_job_spec


def set_counts(replicated_job: Json, pod_set: PodSet) -> Json:
    """Return the replicated job with the number of its pods, and of its Jobs if it is a step of a TrainJob.

    `parallelism` is always written. `completions` of a template that is no training step stay as they are;
    a Job with indexes that says nothing gets as many as it has pods, because Kubernetes asks for them.
    """

    def write(job_spec: Json) -> Json:
        changed = {**job_spec, "parallelism": pod_set.count}
        return changed if pod_set.completions is None else {**changed, "completions": pod_set.completions}

    counted = rewrite_job_spec(replicated_job, write)
    is_step = pod_set.ancestor in ANCESTOR_CONTAINERS or pod_set.replicas != replicated_job.get("replicas", 1)
    return {**counted, "replicas": pod_set.replicas} if is_step else counted
