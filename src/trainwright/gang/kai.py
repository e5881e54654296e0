"""KAI: its pod grouper makes the PodGroup itself, from the JobSet that owns the pods (spec 02 section 13).

It follows the owners pod, Job, JobSet, TrainJob. What it has to be told: that the pods are its own
(`schedulerName`), the queue, and how much of the JobSet must be there at a time. It takes the queue from a
label of the TrainJob, else of the JobSet, else of the pod; the runtime's is the last of the three, so that a
job may name its own.

How much must be there is an annotation of the JobSet. KAI counts it in replicated jobs (up to all of them)
since it knows sub-groups, in pods before; it does not know `dependsOn`. Where all pods start together the
number of pods means "all of it" to both. Where they do not, "1" lets one replicated job start without the
others; KAI still places the pods of each replicated job together.

Source: KAI scheduler's documentation, "Batch and gang scheduling", and its pod grouper for JobSets.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.runtime import KaiPolicy, PodGroupPolicy
from trainwright.gang.contract import Gang, Membership

QUEUE_LABEL: Final = "kai.scheduler/queue"
MIN_MEMBER_ANNOTATION: Final = "kai.scheduler/batch-min-member"


class Kai:
    """Marks for KAI's pod grouper; no object of ours."""

    name = "kai"
    scheduler_name = "kai-scheduler"

    def build_membership(self, policy: PodGroupPolicy, gang: Gang) -> Membership:
        """Return the scheduler's name, the queue and the number that must be there at a time."""
        queue = (policy.kai or KaiPolicy()).queue
        at_once = "1" if gang.has_stages else str(gang.members.count)
        return Membership(
            common_labels={QUEUE_LABEL: queue} if queue else {},
            job_set_annotations=(
                {} if MIN_MEMBER_ANNOTATION in gang.annotations else {MIN_MEMBER_ANNOTATION: at_once}
            ),
            scheduler_name=self.scheduler_name,
        )
