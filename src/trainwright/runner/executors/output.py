"""Takes what a container prints to its log files: the whole, and one file per rank where torchrun tells
them apart.

The container writes into a pipe and waits when we do not keep up, so nothing is held in memory. A full disk
costs output, never the training: what cannot be written is counted and said in the log as soon as there is
room.

torchrun sends every line of a rank through itself with a mark in front (`pod_env.RANK_MARK_TEMPLATE`;
versions that do not know the template print `[default0]:` with the local rank). The mark may stand in the
middle of a line, because torchrun reads a line that is not finished; so the lines of each rank are put
together here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from trainwright.runner.pods.logs import RANKS_FOLDER, LogFile

_READ_BYTES: Final = 1 << 16
# A line of a rank is held back until it is complete, but not beyond this.
_LONGEST_HELD_BYTES: Final = 1 << 20
_MARK: Final = re.compile(rb"\x1e(\d+)\x1f")
_PART_OF_MARK: Final = re.compile(rb"\x1e\d*$")
_OLD_MARK: Final = re.compile(rb"\[[a-z_]+(\d+)\]:")
_TERMINATION_LINES: Final = 80
_TERMINATION_BYTES: Final = 2048
_ROOT_CAUSE: Final = re.compile(
    r"Root Cause.*?^\s*(rank\s*:\s*(\d+) .*?)$.*?^\s*(exitcode\s*:.*?)$", flags=re.S | re.M
)


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """How large a log file grows, and how many there are of one log at most."""

    size_bytes: int = 50 << 20
    files: int = 3


class RotatingFile:
    """A log file that begins anew, at the end of a line, when it is full."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        self._path = path
        self._rotation = rotation
        self._file: int | None = None
        self._size = 0
        self._lost_bytes = 0
        self._loss = ""

    def write(self, data: bytes) -> None:
        """Append; never raises for a disk that is full or gone."""
        try:
            if self._file is None:
                self._open()
            if self._lost_bytes:
                self._append(f"[{self._lost_bytes} bytes of output were lost: {self._loss}]\n".encode())
                self._lost_bytes = 0
            end = data.rfind(b"\n") + 1
            if self._size + len(data) >= self._rotation.size_bytes and end:
                self._append(data[:end])
                self._rotate()
                data = data[end:]
            if data:
                self._append(data)
        except OSError as error:
            self._lost_bytes += len(data)
            self._loss = error.strerror or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _append(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 (opened by the only caller)
        view = memoryview(data)
        while view:
            written = os.write(self._file, view)
            self._size += written
            view = view[written:]

    def _rotate(self) -> None:
        self.close()
        for number in range(self._rotation.files - 1, 0, -1):
            older = self._path if number == 1 else Path(f"{self._path}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                older.rename(f"{self._path}.{number}")
        if self._rotation.files == 1:
            self._path.unlink(missing_ok=True)
        self._open()


class ContainerOutput:
    """The log files of one container, over all its restarts.

    `rank_base` is the global rank of its first process, None where it has none; `processes` how many torchrun
    starts, None where it does not.
    """

    def __init__(
        self, folder: Path, container: str, rotation: Rotation, rank_base: int | None, processes: int | None
    ) -> None:
        self._folder = folder
        self._rotation = rotation
        self._rank_base = rank_base
        self._has_ranks = processes is not None and processes > 1
        self.path = folder / f"{container}.log"
        self._whole = RotatingFile(self.path, rotation)
        self._ranks: dict[int, RotatingFile] = {}
        self._splitter = LineSplitter(rank_base or 0)
        self._only_rank = None if self._has_ranks else rank_base

    def open(self) -> None:
        """Make the log, so that a container that prints nothing has an empty one."""
        self._whole.write(b"")
        if self._only_rank is not None:
            self._link_only_rank(self._only_rank)

    def write(self, data: bytes) -> None:
        """Take what the container has printed."""
        if not self._has_ranks:
            self._whole.write(data)
            return
        self._write_lines(self._splitter.feed(data))

    def finish(self) -> None:
        """Write what was held back of unfinished lines."""
        self._write_lines(self._splitter.finish())

    def close(self) -> None:
        """Close the files."""
        for file in (self._whole, *self._ranks.values()):
            file.close()

    def build_termination_message(self) -> str:
        """Return the last 80 lines or 2048 bytes, as a kubelet does with FallbackToLogsOnError.

        Where torchrun failed these would be its own long report; the last lines of the rank that failed
        first are worth more, and come with what the report says about it.
        """
        lines = LogFile(self.path).read_tail(_TERMINATION_LINES, _TERMINATION_BYTES)
        text = b"\n".join(lines).decode(errors="replace")
        cause = _ROOT_CAUSE.search(text)
        if cause is None:
            return text
        facts = f"{cause.group(1)}\n{cause.group(3)}"
        log = self._folder / RANKS_FOLDER / f"{cause.group(2)}.log"
        words = LogFile(log).read_tail(_TERMINATION_LINES, _TERMINATION_BYTES - len(facts) - 1)
        return b"\n".join(words).decode(errors="replace") + "\n" + facts if words else text

    def _write_lines(self, lines: Iterator[tuple[int | None, bytes]]) -> None:
        whole: list[bytes] = []
        ranks: dict[int, list[bytes]] = {}
        for rank, line in lines:
            if rank is None:
                whole.append(line)
            else:
                whole.append(b"[rank%d] %b" % (rank, line))
                ranks.setdefault(rank, []).append(line)
        if whole:
            self._whole.write(b"".join(whole))
        for rank, parts in ranks.items():
            if rank not in self._ranks:
                path = self._folder / RANKS_FOLDER / f"{rank}.log"
                self._ranks[rank] = RotatingFile(path, self._rotation)
            self._ranks[rank].write(b"".join(parts))

    def _link_only_rank(self, rank: int) -> None:
        """Let `ranks/<rank>.log` be the log of a container whose only process is that rank."""
        link = self._folder / RANKS_FOLDER / f"{rank}.log"
        with contextlib.suppress(OSError):  # there from the first start, or no room: the output matters more
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            link.symlink_to(Path("..") / self.path.name)


class LineSplitter:
    """Puts marked output together to whole lines by rank. Pure."""

    def __init__(self, rank_base: int) -> None:
        self._rank_base = rank_base
        self._pending = b""
        self._held: dict[int | None, bytes] = {}
        self._source: int | None = None

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Yield (rank or None, line with its end) for the lines that are complete."""
        data = self._pending + data
        self._pending = b""
        if part := _PART_OF_MARK.search(data):
            self._pending, data = data[part.start() :], data[: part.start()]
        # Odd items are ranks, even ones what stands between the marks.
        for number, item in enumerate(_MARK.split(data)):
            if number % 2:
                self._source = int(item)
            else:
                yield from self._take(item)

    def finish(self) -> Iterator[tuple[int | None, bytes]]:
        """Yield what is left, with line ends."""
        rest, self._pending = self._pending, b""
        yield from self._take(rest)
        for source, text in self._held.items():
            if text:
                yield self._attribute(source, text + b"\n")
        self._held.clear()
        self._source = None

    def _take(self, text: bytes) -> Iterator[tuple[int | None, bytes]]:
        while text:
            end = text.find(b"\n") + 1
            line = self._held.pop(self._source, b"") + (text[:end] if end else text)
            text = text[end:] if end else b""
            if end:
                yield self._attribute(self._source, line)
                self._source = None  # every line has its own mark
            elif len(line) > _LONGEST_HELD_BYTES:
                yield self._attribute(self._source, line + b"\n")
            else:
                self._held[self._source] = line

    def _attribute(self, source: int | None, line: bytes) -> tuple[int | None, bytes]:
        if source is None and (old := _OLD_MARK.match(line)):
            return self._rank_base + int(old.group(1)), line[old.end() :]
        return source, line


class OutputPump:
    """Moves bytes from the pipe of one attempt of a container to its log files."""

    def __init__(self, output: ContainerOutput) -> None:
        self._output = output
        self._read, self.write_end = os.pipe()
        os.set_blocking(self._read, False)
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Begin, after the container has got the pipe's other end."""
        self._output.open()
        os.close(self.write_end)
        asyncio.get_running_loop().add_reader(self._read, self._pump)

    def abandon(self) -> None:
        """Close the pipe of a container that was not started."""
        os.close(self.write_end)
        os.close(self._read)

    async def finish(self, patience_seconds: float = 5.0) -> None:
        """Wait until everything is written: the pipe ends with the last process that has it."""
        with contextlib.suppress(TimeoutError):  # a setuid process that nobody can end
            async with asyncio.timeout(patience_seconds):
                await self._ended.wait()
        self._end()
        self._output.finish()

    def _pump(self) -> None:
        try:
            data = os.read(self._read, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._output.write(data)
        else:
            self._end()

    def _end(self) -> None:
        if not self._ended.is_set():
            asyncio.get_running_loop().remove_reader(self._read)
            os.close(self._read)
            self._ended.set()
