"""Reads what the containers of a job have printed, while they run or afterwards.

The files are written by `executors.output`: `<container>.log` has everything a container printed, a line of
a rank marked with `[rank3] ` where torchrun tells ranks apart; `ranks/<rank>.log` has one rank alone. Full
files are renamed to `.1`, `.2`, ...; a reader that follows keeps the file open and goes on in the next
younger one, so that no line is lost or seen twice as long as it is not more than the kept files behind.

Whoever deletes the job removes folders and files while they are read: what is gone has no more lines.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

RANKS_FOLDER: Final = "ranks"
LONGEST_LINE_BYTES: Final = 1 << 16
_LOOK_AGAIN_SECONDS: Final = 0.1
_BLOCK_BYTES: Final = 1 << 16
# A program can print faster than its output is shown: then no file comes to its end. Every so many lines
# others have their turn, such as who handles ctrl-C; every so many bytes of one file, the other files.
_LINES_AT_ONCE: Final = 256
_ROUND_BYTES: Final = 1 << 20
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
        for path in _list_folder(self.path.parent):
            # In the middle of a rotation one number may be free.
            name, _, number = path.name.rpartition(".")
            if name == self.path.name and number.isdigit():
                older[int(number)] = path
        return [*(older[number] for number in sorted(older, reverse=True)), self.path]

    def open_generations(self) -> list[int]:
        """Open the files that exist, oldest first; none where one has just gone, or none is there yet."""
        opened: list[int] = []
        try:
            opened.extend(os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self.list_generations())
        except FileNotFoundError:  # deleted, or in the middle of a rotation
            for file in opened:
                os.close(file)
            return []
        return opened

    def measure(self) -> int:
        """Return how many bytes the files hold at this moment."""
        sizes = [_measure(path) for path in self.list_generations()]
        return sum(sizes)

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
        self.is_behind = False

    def read(self, *, is_final: bool = False, most_bytes: int | None = None) -> Iterator[bytes]:
        """Yield the lines that have come since the last call; `is_final` also the unfinished one.

        After `most_bytes`, if given, nothing more is read: `is_behind` says whether that was before the end.
        """
        self.is_behind = False
        left = most_bytes
        while left is None or left > 0:
            block = self._read_block(_BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES))
            if not block:
                break
            left = None if left is None else left - len(block)
            yield from self._split(block)
        else:
            self.is_behind = True
        if is_final and self._pending:
            yield self._pending
            self._pending = b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read_block(self, most_bytes: int) -> bytes:
        """Return what comes next, of the youngest generation at last; nothing at its end."""
        if self._file is None and not self._open_first():
            return b""
        while self._file is not None:
            if block := os.read(self._file, most_bytes):
                return block
            if not self._open_next():
                break
        return b""

    def _open_first(self) -> bool:
        files = self._log.open_generations()
        if not files:
            return False
        # By the files as they are open now: what is written meanwhile comes after it.
        chosen, offset = (0, 0) if self._tail is None else _find_tail(files, self._tail)
        for number, file in enumerate(files):
            if number != chosen:
                os.close(file)
        self._file = files[chosen]
        os.lseek(self._file, offset, os.SEEK_SET)
        return True

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
    everything is read. Otherwise pods follow one another, in the order in which they began, each as far as it
    was when its turn came.
    """
    followers: dict[Path, LogFollower] = {}
    try:
        while True:
            # Asked before reading: what was written until then is seen in this round.
            is_final = not follow or is_finished()
            for path in list_logs(pods, rank):
                if path not in followers:
                    followers[path] = LogFollower(path, tail)
                most = LogFile(path).measure() if not follow else None if is_final else _ROUND_BYTES
                lines = followers[path].read(is_final=is_final, most_bytes=most)
                for number, line in enumerate(lines, start=1):
                    yield _build_line(pods, path, line, rank)
                    if number % _LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
            if is_final:
                return
            is_behind = any(follower.is_behind for follower in followers.values())
            await asyncio.sleep(0 if is_behind else _LOOK_AGAIN_SECONDS)
    finally:
        for follower in followers.values():
            follower.close()


def list_logs(pods: Path, rank: int | None = None) -> list[Path]:
    """Return the logs below a job's `pods` folder, oldest pod first; with a rank, those of that global rank.

    A restarted job has one for each attempt.
    """
    found = [
        path
        for pod in _list_folder(pods)
        for path in _list_folder(pod if rank is None else pod / RANKS_FOLDER)
        if path.suffix == ".log" and (rank is None or path.stem == str(rank)) and path.exists()
    ]
    return sorted(found, key=lambda path: (_began(path.relative_to(pods).parts[0], pods), path))


def list_ranks(pods: Path) -> dict[int, list[Path]]:
    """Return the logs of each global rank."""
    names = {path.stem for pod in _list_folder(pods) for path in _list_folder(pod / RANKS_FOLDER)}
    return {rank: list_logs(pods, rank) for rank in sorted(int(name) for name in names if name.isdigit())}


def _began(pod: str, pods: Path) -> float:
    try:
        return (pods / pod / "began").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


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


def _find_tail(files: Sequence[int], lines: int) -> tuple[int, int]:
    """Return in which of the open files, oldest first, and where in it the last lines begin.

    The end of an older file is that of a line. An unfinished last line is one.
    """
    ends_left = lines
    is_end = True
    for number in reversed(range(len(files))):
        position = os.fstat(files[number]).st_size
        while position > 0:
            step = min(_BLOCK_BYTES, position)
            position -= step
            block = os.pread(files[number], step, position)
            # The end of the last line is not what the line before it ends with.
            place = len(block) - 1 if is_end and block.endswith(b"\n") else len(block)
            if is_end and lines == 0:
                return number, position + len(block)
            is_end = False
            while (place := block.rfind(b"\n", 0, place)) >= 0:
                ends_left -= 1
                if ends_left == 0:
                    return number, position + place + 1
    return 0, 0
