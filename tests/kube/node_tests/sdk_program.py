"""What users of the public Python SDK write. Runs in an environment that has the SDK and nothing of ours.

    python sdk_program.py NAMESPACE KUBECONFIG STORY NAME

Each story is a function of a client and the name of a TrainJob; what it returns is printed as JSON, with the
warnings that the SDK logged meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from typing import Any

from kubeflow.trainer import CustomTrainer, CustomTrainerContainer, KubernetesBackendConfig, TrainerClient
from kubeflow.trainer.options import (
    ActiveDeadlineSeconds,
    Annotations,
    JobSetSpecPatch,
    JobSetTemplatePatch,
    JobSpecPatch,
    JobTemplatePatch,
    Labels,
    Name,
    PodSpecPatch,
    PodTemplatePatch,
    ReplicatedJobPatch,
    RuntimePatch,
    TrainerCommand,
    TrainingRuntimeSpecPatch,
)

# Ends with exit code 0 when it is told to: the pod of a job that is suspended counts as succeeded.
SERVE = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); time.sleep(3600)"
PATIENCE = {"timeout": 240, "polling_interval": 1}
Said = dict[str, Any]


def sum_ranks(base: int) -> None:
    import os

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([base + dist.get_rank()])
    dist.all_reduce(total)
    print(os.environ["GREETING"], "from rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
    print("the sum is", total.item(), flush=True)
    dist.destroy_process_group()


def read_data() -> None:
    print("looking for the data", flush=True)
    raise FileNotFoundError("there are no data in /data")


def do_nothing() -> None:
    pass


def train_to_the_end(client: TrainerClient, name: str) -> Said:
    """A job of two nodes, from the list of runtimes to its deletion."""
    runtimes = {runtime.name: runtime for runtime in client.list_runtimes()}
    torch = client.get_runtime("torch-distributed")
    created = client.train(
        runtime=torch,
        trainer=CustomTrainer(
            func=sum_ranks,
            func_args={"base": 10},
            num_nodes=2,
            resources_per_node={"cpu": 0.75, "memory": "4Gi"},
            env={"GREETING": "hello"},
        ),
        options=[
            Name(name),
            Labels({"team": "vision"}),
            Annotations({"example.com/ticket": "7"}),
            ActiveDeadlineSeconds(600),
            build_pod_patch(),
        ],
    )
    statuses: list[str] = []
    started = client.wait_for_job_status(
        name, {"Running", "Complete"}, callbacks=[lambda job: statuses.append(job.status)], **PATIENCE
    )
    followed = list(client.get_job_logs(name, follow=True))
    done = client.wait_for_job_status(name, callbacks=[lambda job: statuses.append(job.status)], **PATIENCE)
    said: Said = {
        "runtimes": {
            runtime.name: [runtime.trainer.framework, runtime.trainer.image, runtime.kind.value]
            for runtime in runtimes.values()
        },
        "created": created,
        "statuses": sorted(set(statuses), key=statuses.index),
        "started": [dataclasses.asdict(step) for step in started.steps],
        "followed": followed,
        "nodes": done.num_nodes,
        "runtime": done.runtime.name,
        "steps": sorted((step.name, step.status) for step in done.steps),
        "logs": {step.name: list(client.get_job_logs(name, step=step.name)) for step in done.steps},
        "events": [[one.involved_object_kind, one.reason] for one in client.get_job_events(name)],
        "listed": [[job.name, job.status] for job in client.list_jobs()],
        "listed by runtime": [job.name for job in client.list_jobs(runtime=torch)],
        "listed by another runtime": [job.name for job in client.list_jobs(runtime=runtimes["plain"])],
    }
    client.delete_job(name)
    return {**said, "after deletion": [refusal(lambda: client.get_job(name)), client.list_jobs()]}


def fail(client: TrainerClient, name: str) -> Said:
    """A function that raises."""
    client.train(runtime="plain", trainer=CustomTrainer(func=read_data), options=[Name(name)])
    return {
        "waited": refusal(lambda: client.wait_for_job_status(name, **PATIENCE)),
        "status": client.wait_for_job_status(name, {"Failed"}, **PATIENCE).status,
        "logs": list(client.get_job_logs(name)),
        "events": [
            [one.involved_object_kind, one.reason, one.message] for one in client.get_job_events(name)
        ],
    }


def be_refused(client: TrainerClient, name: str) -> Said:
    """Jobs that cannot be: what the user reads of each. The one of the name is made first, for the last."""
    plain = client.get_runtime("plain")

    def train(*options: Any, runtime: Any = plain) -> None:
        client.train(runtime=runtime, trainer=CustomTrainer(func=do_nothing), options=list(options))

    train(Name(name))
    said = {
        "unknown runtime": refusal(lambda: train(runtime="nope")),
        "runtime that went": refusal(lambda: train(runtime=dataclasses.replace(plain, name="gone"))),
        "bad name": refusal(lambda: train(Name("Not_A_Name"))),
        "long name": refusal(lambda: train(Name("x" * 60))),
        "no such step": refusal(lambda: train(build_pod_patch(step="trainer"))),
        "name taken": refusal(lambda: train(Name(name))),
        "unknown job": refusal(lambda: client.get_job("nobody")),
    }
    client.delete_job(name)
    return said


def start(client: TrainerClient, name: str) -> Said:
    """A container that runs until it is told to end."""
    image = client.get_runtime("plain").trainer.image
    client.train(
        runtime="plain",
        trainer=CustomTrainerContainer(image=image),
        options=[Name(name), TrainerCommand(["python", "-c", SERVE])],
    )
    return wait_until_running(client, name)


def wait_until_running(client: TrainerClient, name: str) -> Said:
    """A job that was just made, or that somebody resumed."""
    status = client.wait_for_job_status(name, {"Running"}, **PATIENCE).status
    return {"status": status, "told": [reason for reason, _ in list_own_events(client, name)]}


def start_wrong_image(client: TrainerClient, name: str) -> Said:
    """A job whose pods cannot start."""
    trainer = CustomTrainerContainer(image="no.such.host/image:1")
    client.train(runtime="plain", trainer=trainer, options=[Name(name)])
    return {}


def look(client: TrainerClient, name: str) -> Said:
    """What is shown of a job at this moment."""
    job = client.get_job(name)
    steps = [[step.name, step.status] for step in job.steps]
    return {"status": job.status, "steps": steps, "told": list_own_events(client, name)}


def list_packages(client: TrainerClient, name: str) -> Said:
    """What is in the image of a runtime; prints it, and needs no name."""
    client.get_runtime_packages(client.get_runtime("plain"))
    return {"jobs": client.list_jobs()}


def build_pod_patch(step: str = "node") -> RuntimePatch:
    """Change the pods of a step."""
    pod = PodTemplatePatch(
        metadata={"labels": {"cost-center": "42"}},
        spec=PodSpecPatch(tolerations=[{"key": "busy", "operator": "Exists"}]),
    )
    job = ReplicatedJobPatch(name=step, template=JobTemplatePatch(spec=JobSpecPatch(template=pod)))
    spec = JobSetSpecPatch(replicated_jobs=[job])
    return RuntimePatch(training_runtime_spec=TrainingRuntimeSpecPatch(JobSetTemplatePatch(spec=spec)))


def list_own_events(client: TrainerClient, name: str) -> list[tuple[str, str]]:
    """Return reason and message of what was told about the TrainJob itself."""
    events = client.get_job_events(name)
    return [(one.reason, one.message) for one in events if one.involved_object_kind == "TrainJob"]


def refusal(call: Any) -> list[str]:
    """Return what a user reads: the SDK's own error, and the server's message behind it."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        body = getattr(error.__cause__, "body", None)
        return [type(error).__name__, str(error), json.loads(body)["message"] if body else ""]
    return ["nothing was refused", "", ""]


STORIES = {
    story.__name__: story
    for story in (
        train_to_the_end,
        fail,
        be_refused,
        start,
        start_wrong_image,
        wait_until_running,
        look,
        list_packages,
    )
}


def main() -> None:
    namespace, kubeconfig, story, name = sys.argv[1:]
    warnings = Warnings()
    logging.getLogger("kubeflow").addHandler(warnings)
    client = TrainerClient(KubernetesBackendConfig(namespace=namespace, config_file=kubeconfig))
    said = STORIES[story](client, name)
    print(json.dumps({**said, "warnings": warnings.messages}))


class Warnings(logging.Handler):
    """Keeps what a user would see on the terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


if __name__ == "__main__":
    main()
