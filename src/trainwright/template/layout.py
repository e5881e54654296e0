"""What a TrainJob will look like before its framework has a say: the one thing that frameworks are shown.

Admission and render build it with the same function, so that what is checked is what is rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate, MLPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.template import pod_sets
from trainwright.template.merged import build_merged_template
from trainwright.template.pod_sets import PodSet
from trainwright.template.resources import DEFAULT_ACCELERATORS, AcceleratorNames
from trainwright.template.steps import Step, list_steps

NO_TRAINER = Trainer()


class JobLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A TrainJob over its runtime: merged template, counted pods.

    `trainer` is the TrainJob's block, an empty one where there is none: a job without the block is set up
    like one with an empty block. `template` has patches and resources merged in. `runtime_name` is the one
    that the TrainJob refers to, empty where it refers to none.
    """

    job_name: str
    runtime_name: str = ""
    trainer: Trainer
    policy: MLPolicy | None
    template: JobSetTemplate
    pod_sets: tuple[PodSet, ...]

    @property
    def accelerators(self) -> AcceleratorNames:
        """Which resources of a node are accelerators: GPUs, and what the runtime names."""
        named = self.policy.accelerators if self.policy else None
        return AcceleratorNames(names=frozenset(named)) if named else DEFAULT_ACCELERATORS

    @property
    def steps(self) -> tuple[Step, ...]:
        """What each replicated job takes from the TrainJob, in their order."""
        return list_steps(self.template.spec, self.policy, self.trainer.num_nodes)

    @property
    def trainer_pod_set(self) -> PodSet | None:
        """The pod set that runs the command: the first trainer step; None where the runtime has none."""
        return self._find_first(step.runs_command for step in self.steps)

    @property
    def training_pod_set(self) -> PodSet | None:
        """The first pod set that trains, whose resources are those of a node; None where there is none."""
        return self._find_first(step.uses_resources for step in self.steps)

    @property
    def trainer_resources(self) -> Json:
        """The merged resources of the container that trains, empty where there is none."""
        pod_set = self.training_pod_set
        container = pod_set.find_container(NODE) if pod_set else None
        return (container or {}).get("resources") or {}

    @property
    def subdomain(self) -> str:
        """The subdomain of all pods of the job."""
        return pod_sets.build_subdomain(self.template.spec, self.job_name)

    def find_pod_set(self, name: str) -> PodSet | None:
        """Return the pod set of the replicated job of that name."""
        return next((pod_set for pod_set in self.pod_sets if pod_set.name == name), None)

    def _find_first(self, chosen: Iterable[bool]) -> PodSet | None:
        pairs = zip(self.pod_sets, chosen, strict=True)
        return next((pod_set for pod_set, is_chosen in pairs if is_chosen), None)

    def build_first_endpoint(self, pod_set: PodSet) -> str:
        """Return the address of the first pod (rank 0) of a pod set."""
        return pod_sets.build_endpoint(self.job_name, pod_set, self.subdomain)

    def build_own_endpoint(self, pod_set: PodSet, index: str) -> str:
        """Return the address of any pod of a pod set, where `index` refers to a variable with its index."""
        return pod_sets.build_endpoint(self.job_name, pod_set, self.subdomain, index=index)

    def build_slice_leader(self, pod_set: PodSet, replica: str) -> str:
        """Return the address of a Job's first pod, where `replica` refers to a variable with its index."""
        return pod_sets.build_endpoint(self.job_name, pod_set, self.subdomain, replica=replica)

    def iterate_endpoints(self, pod_set: PodSet) -> Iterator[str]:
        """Yield the address of every pod of a pod set, by rank."""
        return pod_sets.iterate_endpoints(self.job_name, pod_set, self.subdomain)


def build_layout(job: TrainJob, runtime_spec: RuntimeSpec) -> JobLayout:
    """Return the layout of a TrainJob; the runtime's template must have passed `template.shape`."""
    trainer = (job.spec.trainer if job.spec else None) or NO_TRAINER
    template = build_merged_template(runtime_spec, job)
    return JobLayout(
        job_name=job.metadata.name,
        runtime_name=job.spec.runtime_ref.name if job.spec else "",
        trainer=trainer,
        policy=runtime_spec.ml_policy,
        template=template,
        pod_sets=pod_sets.count_pods(template.spec, runtime_spec.ml_policy, trainer.num_nodes),
    )
