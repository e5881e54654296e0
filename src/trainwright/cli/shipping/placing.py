"""A TrainJob whose trainer starts in its code. Pure.

A TrainJob may add volumes to a runtime's pods, but no containers (`runtimePatches`, spec 01 section 1.3), so
the trainer's container unpacks the code itself before it becomes the user's program. That takes `sh` and
`tar`, or `python3` where there is no tar, in the user's image: every image that has Python scripts to run has
one of the two, and nothing is pulled from elsewhere.

No word of the user is ever part of what the shell reads: the program and its arguments are the shell's own
arguments, and `exec` makes the process the user's, with its signals and its exit code.

All steps that train get the volumes; those that run the command start in the code by themselves, and the
others, nodes of MPI, when mpirun arrives there (`mpi_agent`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from trainwright.api.constants import NODE
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
from trainwright.template.replicated_jobs import find_named, get_pod_spec, list_replicated_jobs
from trainwright.template.steps import list_steps

MANAGER = "trainer.kubeflow.org/trainwright"

# In the archive and in the pod: the user's code, and what goes on PYTHONPATH behind everything else.
CODE_FOLDER = "code"
LIBRARY_FOLDER = "lib"

_ARCHIVE_VOLUME, _WORK_VOLUME, _CLAIM_VOLUME = "trainwright-archive", "trainwright-work", "trainwright-code"
_CLAIM_PATH = "/trainwright/code"

_NO_UNPACKER = "trainwright: the image has neither tar nor python3 to unpack the code with"
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
# In Python: what else images have for it differs. A folder moves only where its owner may write to it.
_DOWNLOAD = (
    f'  python3 -c "{_DOWNLOAD_BY_PYTHON}" "$1" > $new/download',
    f"  mkdir $new/{CODE_FOLDER}",
    f'  python3 -c "{_UNPACK_BY_PYTHON}" $new/{CODE_FOLDER} < $new/download',
    f"  chmod u+w $new/{CODE_FOLDER}",
    "  rm $new/download",
)
NO_EXPORTS: Mapping[str, str] = MappingProxyType({})


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of the archive are mounted in the pod, and the empty folder they are unpacked into."""

    archive: str = "/trainwright/archive"
    work: str = "/trainwright/work"


def place_code(
    train_job: TrainJob,
    runtime: Runtime,
    shipment: Shipment,
    code: CodeSource,
    exports: Mapping[str, str] = NO_EXPORTS,
) -> TrainJob:
    """Return the job with its code mounted and unpacked, and its trainer started there with our `exports`.

    Raises UsageError where the runtime has no training container that could be given it.
    """
    assert train_job.spec is not None  # noqa: S101 (narrows the type)
    trainer = train_job.spec.trainer or Trainer()
    words = build_start(code, Places(), exports)
    command = [*map(escape_references, words), *(trainer.command or ())]
    patch = _build_patch(_list_training_steps(runtime), shipment, code)
    spec = msgspec.structs.replace(
        train_job.spec,
        trainer=msgspec.structs.replace(trainer, command=command),
        runtime_patches=[*(train_job.spec.runtime_patches or ()), patch],
    )
    return msgspec.structs.replace(train_job, spec=spec)


def build_start(code: CodeSource, places: Places, exports: Mapping[str, str] = NO_EXPORTS) -> list[str]:
    """Return the words that go before a command so that it starts in its code, unchanged.

    A container that is restarted in its pod finds its code as it left it. Several that start in a pod at the
    same moment, as two mpiruns of one script do, find it whole: folders are put in place by renaming them.
    `exports` are variables of ours, of letters that mean nothing to a shell.
    """
    lines = [*_build_unpacking(code, places)]
    if isinstance(code, CodeUrl):
        lines.append("shift")
    folder = _CLAIM_PATH if isinstance(code, CodeVolume) else f"{places.work}/{CODE_FOLDER}"
    lines += [
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{places.work}/{LIBRARY_FOLDER}"',
        *(f"export {name}={value}" for name, value in exports.items()),
        f"cd {folder}",
        'exec "$@"',
        "",
    ]
    words = [code.url] if isinstance(code, CodeUrl) else []
    return ["sh", "-c", "\n".join(lines), "trainwright", *words]


def _build_unpacking(code: CodeSource, places: Places) -> list[str]:
    """Return the lines that fill the empty folder, once; an archive that is elsewhere is `$1`."""
    parts, work = f"{places.archive}/{PART_KEY}-*", places.work
    return [
        "set -e",
        f"if [ ! -e {work}/unpacked ]; then",
        f"  new=`mktemp -d {work}/new.XXXXXX`",
        f"  if command -v tar >/dev/null; then cat {parts} | tar -x -z -p -o -f - -C $new",
        "  elif command -v python3 >/dev/null; then",
        f'    cat {parts} | python3 -c "{_UNPACK_BY_PYTHON}" $new',
        f'  else echo "{_NO_UNPACKER}" >&2; exit 127; fi',
        *(_DOWNLOAD if isinstance(code, CodeUrl) else ()),
        f"  mv $new/* {work} 2>/dev/null || : another start was first",
        "  rm -rf $new 2>/dev/null || :",
        f"  : > {work}/unpacked",
        "fi",
    ]


def _list_training_steps(runtime: Runtime) -> list[str]:
    """Return the steps whose pods need the code; at least one of them runs the command."""
    spec = runtime.spec
    template = spec.template.spec if spec and spec.template else None
    steps = list_steps(template, spec.ml_policy if spec else None)
    found = [
        (str(replicated_job["name"]), step)
        for replicated_job, step in zip(list_replicated_jobs(template), steps, strict=True)
        if step.trains and find_named(get_pod_spec(replicated_job).get("containers"), NODE)
    ]
    if not any(step.runs_command for _, step in found):
        raise UsageError(
            f"runtime {runtime.metadata.name!r} has no training step with a container {NODE!r}: there is "
            "nothing to send code to; use another runtime, or --no-code"
        )
    return [name for name, _ in found]


def _build_patch(steps: Sequence[str], shipment: Shipment, code: CodeSource) -> RuntimePatch:
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
        spec=JobSetSpecPatch(replicated_jobs=[ReplicatedJobPatch(name=step, template=job) for step in steps])
    )
    return RuntimePatch(manager=MANAGER, training_runtime_spec=TrainingRuntimeSpecPatch(template=template))
