"""Keeps what a job reported, one JSON object a line, and reads it back as curves.

Append-only and made to be read while it is written: a line cut off by a crash or a full disk is skipped.
A file that grows beyond its limit is thinned to every second report; first and last stay. Metrics are kept
as the job sent them and become numbers when they are read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import msgspec

from trainwright.control.progress_protocol import Report

_MAX_BYTES = 4 * 1024 * 1024


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One report. `time` is in Unix seconds; metrics that are no numbers are left out when read."""

    time: float
    progress_percentage: int | None = None
    metrics: dict[str, float] = {}


class _Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    time: float
    progress_percentage: int | None = None
    metrics: dict[str, str] = {}


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Line)


class ProgressHistory:
    """The history of one job, to be appended to. One writer at a time; readers need no lock."""

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._is_torn = _ends_within_line(path)

    def append(self, report: Report) -> None:
        """Add a report. Raises OSError where it cannot be written; the next one may be."""
        status = report.status
        line = _ENCODER.encode(
            _Line(
                time=report.reported_at.timestamp(),
                progress_percentage=status.progress_percentage,
                metrics={metric.name: metric.value for metric in status.metrics or ()},
            )
        )
        start = b"\n" if self._is_torn else b""
        self._is_torn = True
        with self._path.open("ab", buffering=0) as file:
            _write_all(file.fileno(), start + line + b"\n")
            size = file.tell()
        self._is_torn = False
        if size > self._max_bytes:
            self._thin()

    def _thin(self) -> None:
        lines = self._path.read_bytes().splitlines(keepends=True)
        kept = [*lines[:-1:2], lines[-1]]
        temporary = self._path.with_name(f".{self._path.name}.thinned")
        temporary.write_bytes(b"".join(kept))
        temporary.replace(self._path)


def read_history(path: Path) -> list[HistoryEntry]:
    """Return the reports in the order in which they came; none where there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for text in lines:
        try:
            line = _DECODER.decode(text)
        except msgspec.DecodeError:  # cut off
            continue
        metrics = {
            name: number for name, value in line.metrics.items() if (number := _number(value)) is not None
        }
        entries.append(
            HistoryEntry(time=line.time, progress_percentage=line.progress_percentage, metrics=metrics)
        )
    return entries


class Reported(Protocol):
    """What curves are made of."""

    @property
    def time(self) -> float:
        """Unix seconds."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name."""
        ...


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics over a common axis: "epoch", "step" or "minutes". Each curve is (x, y) with x ascending."""

    axis: str
    metrics: dict[str, list[tuple[float, float]]]


# Where along the training a report was made, in the words of this library and of Hugging Face's callback.
_EPOCH_NAMES = ("epoch", "current_epoch")
_STEP_NAMES = ("step", "current_step", "global_step")
_BOOKKEEPING = frozenset({*_EPOCH_NAMES, *_STEP_NAMES, "total_steps"})


def build_curves(reports: Sequence[Reported]) -> Curves:
    """Return every metric as a curve, in the order in which the metrics first came.

    The axis is the epoch where every report has its own, else the step, else the time. A training that went
    back (it failed and went on from a checkpoint) overwrites what it does again. Values that are not finite
    leave a gap.
    """
    axis, positions = _choose_axis(reports)
    curves: dict[str, list[tuple[float, float]]] = {}
    for position, report in zip(positions, reports, strict=True):
        for name, value in report.metrics.items():
            if name in _BOOKKEEPING or not math.isfinite(value):
                continue
            curve = curves.setdefault(name, [])
            while curve and curve[-1][0] >= position:
                curve.pop()
            curve.append((position, value))
    return Curves(axis=axis, metrics=curves)


def _choose_axis(reports: Sequence[Reported]) -> tuple[str, list[float]]:
    epochs, steps = _read_positions(reports, _EPOCH_NAMES), _read_positions(reports, _STEP_NAMES)
    if epochs and (not steps or _count_moves(epochs) == _count_moves(steps)):
        return "epoch", epochs
    if steps:
        return "step", steps
    start = reports[0].time if reports else 0.0
    return "minutes", [(report.time - start) / 60 for report in reports]


def _read_positions(reports: Sequence[Reported], names: Sequence[str]) -> list[float]:
    """Return where every report was made; nothing if one does not say, or none ever moves."""
    positions = [next((r.metrics[name] for name in names if name in r.metrics), math.nan) for r in reports]
    usable = all(map(math.isfinite, positions)) and len(set(positions)) > 1
    return positions if usable else []


def _count_moves(positions: Sequence[float]) -> int:
    return sum(a != b for a, b in pairwise(positions))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _ends_within_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
