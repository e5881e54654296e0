"""From a job and a directory to what is sent: the one place where the parts of this package meet."""

from __future__ import annotations

from pathlib import Path

from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.build_train_job import Entry as Start
from trainwright.cli.code_sources import CodeSource, NoCode, WorkingDirectory
from trainwright.cli.mpirun import find_mpirun
from trainwright.cli.shipping.archive import build_archive
from trainwright.cli.shipping.carriers import MOST_BYTES, build_shipment
from trainwright.cli.shipping.entries import check_is_shipped
from trainwright.cli.shipping.mpi_agent import (
    build_agent,
    build_agent_exports,
    check_agent,
    list_variables,
)
from trainwright.cli.shipping.placing import (
    CODE_FOLDER,
    LIBRARY_FOLDER,
    NO_EXPORTS,
    Places,
    build_start,
    place_code,
)
from trainwright.cli.shipping.tree import Entry, TooMuchCode, list_largest, read_tree
from trainwright.cli.targets import Packed
from trainwright.runner.progress.package import read_sources

_FOLDER_MODE, _FILE_MODE = 0o755, 0o644


def pack_job(train_job: TrainJob, runtime: Runtime, start: Start, code: CodeSource, root: Path) -> Packed:
    """Return the job with what carries its code. Raises UsageError, TooMuchCode."""
    if isinstance(code, NoCode):
        return Packed(train_job=train_job)
    entries = _list_library()
    tree: list[Entry] = []
    if isinstance(code, WorkingDirectory):
        tree = read_tree(root)
        check_is_shipped(start, {entry.path for entry in tree})
        entries += [
            Entry(path=CODE_FOLDER, mode=_FOLDER_MODE),
            *(_move(entry, CODE_FOLDER) for entry in tree),
        ]
    exports = NO_EXPORTS
    if find_mpirun(runtime) is not None:
        check_agent(train_job, runtime)
        places = Places()
        exports = build_agent_exports(places.work)
        entries += build_agent(build_start(code, places, exports), list_variables(train_job), places.work)
    archive = build_archive(entries)
    if len(archive) > MOST_BYTES:
        why = (
            f"is {len(archive) / 1e6:.1f} MB when compressed; up to {MOST_BYTES / 1e6:.0f} MB are sent along"
        )
        raise TooMuchCode(
            root, why, list_largest([(entry.path, len(entry.content or b"")) for entry in tree])
        )
    shipment = build_shipment(archive, train_job.metadata.namespace or "")
    placed = place_code(train_job, runtime, shipment, code, exports)
    return Packed(train_job=placed, carriers=shipment.carriers)


def _list_library() -> list[Entry]:
    """Return `trainwright.progress`, so that code in the pod can report as it does here."""
    folders = ("", "/trainwright", "/trainwright/progress")
    return [
        *(Entry(path=f"{LIBRARY_FOLDER}{folder}", mode=_FOLDER_MODE) for folder in folders),
        *(
            Entry(path=f"{LIBRARY_FOLDER}/trainwright/progress/{name}", mode=_FILE_MODE, content=content)
            for name, content in read_sources().items()
        ),
    ]


def _move(entry: Entry, folder: str) -> Entry:
    return Entry(path=f"{folder}/{entry.path}", mode=entry.mode, content=entry.content, target=entry.target)
