"""When a JobSet has succeeded (spec 02, section 14.7, "Success")."""

from __future__ import annotations

from trainwright.api.jobset import JobSet, SuccessPolicy
from trainwright.runner.controllers.child_jobs import ChildJobs, get_replicated_job_name

ANY = "Any"


def is_successful(job_set: JobSet, children: ChildJobs) -> bool:
    """Say whether enough Jobs of the targeted replicated jobs have succeeded; no target means all of them.

    A JobSet in which nothing has succeeded is never successful, not even one that expects nothing.
    """
    policy = job_set.spec.success_policy or SuccessPolicy()
    targets = set(policy.target_replicated_jobs or ()) or {job.name for job in job_set.spec.replicated_jobs}
    succeeded = sum(get_replicated_job_name(job) in targets for job in children.successful)
    if policy.operator == ANY:
        return succeeded >= 1
    expected = sum(job.replicas for job in job_set.spec.replicated_jobs if job.name in targets)
    return bool(children.successful) and succeeded >= expected
