"""Reads what the containers of a job have printed, while they run or afterwards.

The files are written by `executors.output`: `<container>.log` has everything a container printed, a line of
a rank marked with `[rank3] ` where torchrun tells ranks apart; `ranks/<rank>.log` has one rank alone. Full
files are renamed to `.1`, `.2`, ...; a reader that follows keeps the file open and goes on in the next
younger one, so that no line is lost or seen twice as long as it is not more than the kept files behind.
"""

from __future__ import annotations

import asyncio
import glob
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

RANKS_FOLDER: Final = "ranks"
LONGEST_LINE_BYTES: Final = 1 << 16
_LOOK_AGAIN_SECONDS: Final = 0.1
_BLOCK_BYTES: Final = 1 << 16
_RANK: Final = re.compile(rb"\[rank(\d+)\] ")


class OutputLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line without its end. `rank` is None for what no rank printed, or where there are none.

    A line longer than 64 KiB comes in pieces; what is no UTF-8 is replaced.
    """

    pod: str
    container: str
    text: str
    rank: int | None = None


class LogFile:
    """A log and its older generations, oldest first."""

    def __init__(self, path: Path) -> None:
        # `ranks/0.log` may be a link to the log of the only process; generations are beside the real one.
        self.path = path.resolve()

    def list_generations(self) -> list[Path]:
        """Return the files that exist, oldest first."""
        older: dict[int, Path] = {}
        for path in self.path.parent.glob(f"{glob.escape(self.path.name)}.*"):
            # In the middle of a rotation one number may be free.
            number = path.name.removeprefix(f"{self.path.name}.")
            if number.isdigit():
                older[int(number)] = path
        return [*(older[number] for number in sorted(older, reverse=True)), self.path]

    def read_tail(self, lines: int, most_bytes: int | None = None) -> list[bytes]:
        """Return the last lines without their ends, of at most so many bytes in all."""
        found: deque[bytes] = deque()
        size = 0
        for path in reversed(self.list_generations()):
            for line in _read_backwards(path):
                size += len(line) + 1
                if len(found) == lines or (most_bytes is not None and size > most_bytes + 1):
                    return list(found)
                found.appendleft(line)
        return list(found)


class LogFollower:
    """Reads one log from a point on, across generations."""

    def __init__(self, path: Path, tail: int | None = None) -> None:
        self._log = LogFile(path)
        self._tail = tail
        self._file: int | None = None
        self._pending = b""

    def read(self, *, is_final: bool = False) -> Iterator[bytes]:
        """Yield the lines that have come since the last call; `is_final` also the unfinished one."""
        if self._file is None and not self._open_first():
            return
        while self._file is not None:
            while block := os.read(self._file, _BLOCK_BYTES):
                yield from self._split(block)
            if not self._open_next():
                break
        if is_final and self._pending:
            yield self._pending
            self._pending = b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_first(self) -> bool:
        skipped: list[bytes] = []
        if self._tail is not None:
            skipped = self._log.read_tail(self._tail)
        generations = self._log.list_generations()
        try:
            self._file = os.open(generations[0], os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if self._tail is not None:
            self._seek(sum(len(line) + 1 for line in skipped))
            self._tail = None
        return True

    def _seek(self, last_bytes: int) -> None:
        """Go to so many bytes before the end of the youngest generation."""
        sizes = [path.stat().st_size for path in self._log.list_generations()]
        if not self._ends_with_newline():
            last_bytes -= 1
        skip = max(0, sum(sizes) - last_bytes)
        while self._file is not None and skip > (size := os.fstat(self._file).st_size):
            skip -= size
            if not self._open_next():
                break
        if self._file is not None:
            os.lseek(self._file, skip, os.SEEK_SET)

    def _ends_with_newline(self) -> bool:
        with self._log.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"

    def _open_next(self) -> bool:
        """Go on to the next younger generation, where the open file is not the youngest."""
        if self._file is None:
            return False
        own = os.fstat(self._file)
        if _is_same(self._log.path, own):
            return False
        generations = self._log.list_generations()
        position = next(
            (n for n, path in enumerate(generations) if _is_same(path, own)),
            -1,  # already deleted: what is kept begins after it
        )
        if position == len(generations) - 1:
            return False
        try:
            younger = os.open(generations[position + 1], os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False  # in the middle of a renaming
        # Between the last read and the renaming more may have been written.
        rest = os.read(self._file, _BLOCK_BYTES)
        if rest:
            os.close(younger)
            os.lseek(self._file, -len(rest), os.SEEK_CUR)
            return True
        os.close(self._file)
        self._file = younger
        return True

    def _split(self, block: bytes) -> Iterator[bytes]:
        *lines, self._pending = (self._pending + block).split(b"\n")
        for line in lines:
            yield from _cut(line)
        if len(self._pending) > LONGEST_LINE_BYTES:
            *pieces, self._pending = _cut(self._pending)
            yield from pieces


async def read_logs(
    pods: Path,
    *,
    rank: int | None = None,
    tail: int | None = None,
    follow: bool = False,
    is_finished: Callable[[], bool] = lambda: True,
) -> AsyncIterator[OutputLine]:
    """Yield the output of all pods below a folder, or of one global rank; `tail` counts per file.

    When following, pods that come later are found too, and the end is when `is_finished` says so and
    everything is read. Otherwise pods follow one another, in the order in which they began.
    """
    followers: dict[Path, LogFollower] = {}
    try:
        while True:
            # Asked before reading: what was written until then is seen in this round.
            is_final = not follow or is_finished()
            for path in list_logs(pods, rank):
                if path not in followers:
                    followers[path] = LogFollower(path, tail)
                for line in followers[path].read(is_final=is_final):
                    yield _build_line(pods, path, line, rank)
            if is_final:
                return
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    finally:
        for follower in followers.values():
            follower.close()


def list_logs(pods: Path, rank: int | None = None) -> list[Path]:
    """Return the logs below a job's `pods` folder, oldest pod first; with a rank, those of that global rank.

    A restarted job has one for each attempt.
    """
    pattern = "*/*.log" if rank is None else f"*/{RANKS_FOLDER}/{rank}.log"
    found = [path for path in pods.glob(pattern) if path.exists()]
    return sorted(found, key=lambda path: (_began(path.relative_to(pods).parts[0], pods), path))


def list_ranks(pods: Path) -> dict[int, list[Path]]:
    """Return the logs of each global rank."""
    ranks: dict[int, list[Path]] = {}
    for path in pods.glob(f"*/{RANKS_FOLDER}/*.log"):
        if path.stem.isdigit():
            ranks.setdefault(int(path.stem), []).append(path)
    return {rank: list_logs(pods, rank) for rank in sorted(ranks)}


def _began(pod: str, pods: Path) -> float:
    try:
        return (pods / pod / "began").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _build_line(pods: Path, path: Path, line: bytes, rank: int | None) -> OutputLine:
    found = _RANK.match(line) if rank is None else None
    if found:
        rank, line = int(found.group(1)), line[found.end() :]
    pod = path.relative_to(pods).parts[0]
    container = path.stem if path.parent.name != RANKS_FOLDER else path.resolve().stem
    return OutputLine(
        pod=pod,
        container=container if not container.isdigit() else "",
        text=line.rstrip(b"\r").decode(errors="replace"),
        rank=rank,
    )


def _is_same(path: Path, other: os.stat_result) -> bool:
    try:
        mine = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino)


def _cut(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST_LINE_BYTES] for at in range(0, len(line) or 1, LONGEST_LINE_BYTES)]


def _read_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file from the last to the first."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        is_end = True
        while position > 0:
            step = min(_BLOCK_BYTES, position)
            position -= step
            file.seek(position)
            rest = file.read(step) + rest
            if is_end:
                rest = rest.removesuffix(b"\n")
                is_end = False
            (*lines,) = rest.split(b"\n")
            rest = lines[0]
            yield from reversed(lines[1:])
        if not is_end:
            yield rest
