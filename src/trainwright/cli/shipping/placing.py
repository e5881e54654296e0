"""A TrainJob whose trainer starts in its code. Pure.

A TrainJob may add volumes to a runtime's pods, but no containers (`runtimePatches`, spec 01 section 1.3), so
the trainer's container unpacks the code itself before it becomes the user's program. That takes `sh` and
`tar`, or `python3` where there is no tar, in the user's image: every image that has Python scripts to run has
one of the two, and nothing is pulled from elsewhere.

No word of the user is ever part of what the shell reads: the program and its arguments are the shell's own
arguments, and `exec` makes the process the user's, with its signals and its exit code.
"""

from __future__ import annotations

import msgspec

from trainwright.api.constants import ANCESTOR_TRAINER, NODE
from trainwright.api.meta import Json
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import (
    ContainerPatch,
    JobSetSpecPatch,
    JobSetTemplatePatch,
    JobSpecPatch,
    JobTemplatePatch,
    PodSpecPatch,
    PodTemplatePatch,
    ReplicatedJobPatch,
    RuntimePatch,
    Trainer,
    TrainingRuntimeSpecPatch,
    TrainJob,
)
from trainwright.cli.build_train_job import escape_references
from trainwright.cli.code_sources import CodeSource, CodeUrl, CodeVolume
from trainwright.cli.shipping.carriers import PART_KEY, Shipment
from trainwright.errors import UsageError
from trainwright.template.replicated_jobs import find_named, get_ancestor, get_pod_spec, list_replicated_jobs

MANAGER = "trainer.kubeflow.org/trainwright"

# In the archive and in the pod: the user's code, and what goes on PYTHONPATH behind everything else.
CODE_FOLDER = "code"
LIBRARY_FOLDER = "lib"

_ARCHIVE_VOLUME, _WORK_VOLUME, _CLAIM_VOLUME = "trainwright-archive", "trainwright-work", "trainwright-code"
_CLAIM_PATH = "/trainwright/code"

_UNPACK_BY_PYTHON = (
    "import io,sys,tarfile;"
    "t=tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()),encoding='utf-8',errors='surrogateescape');"
    "t.extraction_filter=getattr(tarfile,'fully_trusted_filter',None);"
    "t.extractall(sys.argv[1])"
)
_DOWNLOAD_BY_PYTHON = (
    "import shutil,sys,urllib.request;"
    "shutil.copyfileobj(urllib.request.urlopen(sys.argv[1]),sys.stdout.buffer)"
)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of the archive are mounted in the pod, and the empty folder they are unpacked into."""

    archive: str = "/trainwright/archive"
    work: str = "/trainwright/work"


def place_code(train_job: TrainJob, runtime: Runtime, shipment: Shipment, code: CodeSource) -> TrainJob:
    """Return the job with its code mounted and unpacked, and its trainer started there.

    Raises UsageError where the runtime has no training container that could be given it.
    """
    assert train_job.spec is not None  # noqa: S101 (narrows the type)
    trainer = train_job.spec.trainer or Trainer()
    command = [*build_start(code, Places()), *(trainer.command or ())]
    patch = _build_patch(_find_trainer_step(runtime), shipment, code)
    spec = msgspec.structs.replace(
        train_job.spec,
        trainer=msgspec.structs.replace(trainer, command=command),
        runtime_patches=[*(train_job.spec.runtime_patches or ()), patch],
    )
    return msgspec.structs.replace(train_job, spec=spec)


def build_start(code: CodeSource, places: Places) -> list[str]:
    """Return the words that go before a command so that it starts in its code, unchanged.

    A container that is restarted in its pod finds its code as it left it. Kubernetes replaces `$(NAME)` and
    `$$` in commands: there is none in the script, and a URL has them escaped.
    """
    parts = [_build_unpacking(places)]
    words: list[str] = []
    if isinstance(code, CodeUrl):
        parts.append(_build_download(places))
        words = [escape_references(code.url)]
    folder = _CLAIM_PATH if isinstance(code, CodeVolume) else f"{places.work}/{CODE_FOLDER}"
    parts.append(
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{places.work}/{LIBRARY_FOLDER}"\n'
        f'cd {folder}\nexec "$@"\n'
    )
    return ["sh", "-c", "".join(parts), "trainwright", *words]


def _build_unpacking(places: Places) -> str:
    parts, work = f"{places.archive}/{PART_KEY}-*", places.work
    return f"""set -e
if [ ! -e {work}/unpacked ]; then
  if command -v tar >/dev/null; then cat {parts} | tar -x -z -p -o -f - -C {work}
  elif command -v python3 >/dev/null; then cat {parts} | python3 -c "{_UNPACK_BY_PYTHON}" {work}
  else echo "trainwright: the image has neither tar nor python3 to unpack the code with" >&2; exit 127; fi
  : > {work}/unpacked
fi
"""


def _build_download(places: Places) -> str:
    """Return the script that gets `$1` and takes it away. In Python: what else images have for it differs."""
    work = places.work
    return f"""if [ ! -e {work}/downloaded ]; then
  mkdir -p {work}/{CODE_FOLDER}
  python3 -c "{_DOWNLOAD_BY_PYTHON}" "$1" > {work}/download
  python3 -c "{_UNPACK_BY_PYTHON}" {work}/{CODE_FOLDER} < {work}/download
  rm {work}/download
  : > {work}/downloaded
fi
shift
"""


def _find_trainer_step(runtime: Runtime) -> str:
    template = runtime.spec.template if runtime.spec else None
    for replicated_job in list_replicated_jobs(template.spec if template else None):
        if get_ancestor(replicated_job) == ANCESTOR_TRAINER and find_named(
            get_pod_spec(replicated_job).get("containers"), NODE
        ):
            return str(replicated_job["name"])
    raise UsageError(
        f"runtime {runtime.metadata.name!r} has no training step with a container {NODE!r}: there is nothing "
        "to send code to; use another runtime, or --no-code"
    )


def _build_patch(step: str, shipment: Shipment, code: CodeSource) -> RuntimePatch:
    places = Places()
    sources = [
        {"configMap": {"name": name, "items": [{"key": PART_KEY, "path": f"{PART_KEY}-{number:02}"}]}}
        for number, name in enumerate(shipment.names)
    ]
    volumes: list[Json] = [
        {"name": _ARCHIVE_VOLUME, "projected": {"sources": sources}},
        {"name": _WORK_VOLUME, "emptyDir": {}},
    ]
    mounts: list[Json] = [
        {"name": _ARCHIVE_VOLUME, "mountPath": places.archive, "readOnly": True},
        {"name": _WORK_VOLUME, "mountPath": places.work},
    ]
    if isinstance(code, CodeVolume):
        volumes.append({"name": _CLAIM_VOLUME, "persistentVolumeClaim": {"claimName": code.claim}})
        sub_path = {"subPath": code.path} if code.path else {}
        mounts.append({"name": _CLAIM_VOLUME, "mountPath": _CLAIM_PATH, **sub_path})
    pod = PodSpecPatch(volumes=volumes, containers=[ContainerPatch(name=NODE, volume_mounts=mounts)])
    job = JobTemplatePatch(spec=JobSpecPatch(template=PodTemplatePatch(spec=pod)))
    template = JobSetTemplatePatch(
        spec=JobSetSpecPatch(replicated_jobs=[ReplicatedJobPatch(name=step, template=job)])
    )
    return RuntimePatch(manager=MANAGER, training_runtime_spec=TrainingRuntimeSpecPatch(template=template))
