from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.trainjob import Metric, TrainerStatus
from trainwright.control.progress_protocol import Report
from trainwright.runner.progress.history import (
    Curves,
    HistoryEntry,
    ProgressHistory,
    build_curves,
    read_history,
)


def report(second: int, percent: int | None = None, **metrics: str) -> Report:
    listed = [Metric(name=name, value=value) for name, value in metrics.items()]
    return Report(
        reported_at=datetime.fromtimestamp(second, UTC),
        status=TrainerStatus(progress_percentage=percent, metrics=listed or None),
    )


def entry(second: float, **metrics: float) -> HistoryEntry:
    return HistoryEntry(time=second, metrics=metrics)


def test_what_is_appended_is_read_back_in_order(tmp_path: Path):
    path = tmp_path / "progress.jsonl"
    history = ProgressHistory(path)
    history.append(report(10, 1, loss="2.5", phase="warm-up"))
    history.append(report(11, 2, loss="1e-3"))
    history.append(report(12))
    assert read_history(path) == [
        HistoryEntry(time=10.0, progress_percentage=1, metrics={"loss": 2.5}),
        HistoryEntry(time=11.0, progress_percentage=2, metrics={"loss": 0.001}),
        HistoryEntry(time=12.0),
    ]


def test_a_job_that_never_reported_has_an_empty_history(tmp_path: Path):
    assert read_history(tmp_path / "absent") == []


def test_a_line_cut_off_by_a_crash_costs_only_itself(tmp_path: Path):
    path = tmp_path / "progress.jsonl"
    ProgressHistory(path).append(report(1, loss="1"))
    ProgressHistory(path).append(report(2, loss="2"))
    path.write_bytes(path.read_bytes()[:-9])
    ProgressHistory(path).append(report(3, loss="3"))
    assert [e.metrics for e in read_history(path)] == [{"loss": 1.0}, {"loss": 3.0}]


def test_a_write_that_fails_costs_only_itself(tmp_path: Path):
    path = tmp_path / "progress.jsonl"
    history = ProgressHistory(path)
    history.append(report(1, loss="1"))
    path.rename(tmp_path / "aside")
    path.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        history.append(report(2, loss="2"))
    path.rmdir()
    (tmp_path / "aside").rename(path)
    history.append(report(3, loss="3"))
    assert [e.metrics for e in read_history(path)] == [{"loss": 1.0}, {"loss": 3.0}]


@given(count=st.integers(1, 80), max_bytes=st.integers(200, 600))
def test_a_history_stays_within_its_limit_and_keeps_first_and_last(count: int, max_bytes: int):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "progress.jsonl"
        history = ProgressHistory(path, max_bytes)
        for second in range(count):
            history.append(report(second, loss="0.5"))
            assert path.stat().st_size <= max_bytes
        times = [e.time for e in read_history(path)]
        assert times[0] == 0
        assert times[-1] == count - 1
        assert times == sorted(set(times))
        assert list(path.parent.iterdir()) == [path]


CURVES = {
    "nothing reported": ([], Curves(axis="minutes", metrics={})),
    "by epoch where each report has its own": (
        [entry(0, epoch=1, step=10, loss=2), entry(1, epoch=2, step=20, loss=1)],
        Curves(axis="epoch", metrics={"loss": [(1, 2), (2, 1)]}),
    ),
    "by step where an epoch has several reports": (
        [
            entry(0, epoch=1, step=10, loss=3),
            entry(1, epoch=1, step=20, loss=2),
            entry(2, epoch=2, step=30, loss=1),
        ],
        Curves(axis="step", metrics={"loss": [(10, 3), (20, 2), (30, 1)]}),
    ),
    "Hugging Face's names": (
        [
            entry(0, current_step=1, total_steps=9, current_epoch=0.0, loss=2),
            entry(1, current_step=2, total_steps=9, current_epoch=0.0, loss=1),
        ],
        Curves(axis="step", metrics={"loss": [(1, 2), (2, 1)]}),
    ),
    "by time where reports do not say where they are": (
        [entry(100, loss=2), entry(160, loss=1)],
        Curves(axis="minutes", metrics={"loss": [(0, 2), (1, 1)]}),
    ),
    "by time where one report does not say where it is": (
        [entry(0, step=1, loss=2), entry(60, loss=1)],
        Curves(axis="minutes", metrics={"loss": [(0, 2), (1, 1)]}),
    ),
    "a training that went back overwrites what it repeats": (
        [
            entry(0, step=1, loss=9),
            entry(1, step=2, loss=8),
            entry(2, step=3, loss=7),
            entry(3, step=2, loss=6),
        ],
        Curves(axis="step", metrics={"loss": [(1, 9), (2, 6)]}),
    ),
    "values that are not finite are a gap": (
        [entry(0, step=1, loss=2), entry(1, step=2, loss=float("nan")), entry(2, step=3, loss=float("inf"))],
        Curves(axis="step", metrics={"loss": [(1, 2)]}),
    ),
    "metrics that come later": (
        [entry(0, step=1, loss=2), entry(1, step=2, loss=1, accuracy=0.5)],
        Curves(axis="step", metrics={"loss": [(1, 2), (2, 1)], "accuracy": [(2, 0.5)]}),
    ),
}


@pytest.mark.parametrize(("reports", "curves"), CURVES.values(), ids=CURVES)
def test_curves(reports: list[HistoryEntry], curves: Curves):
    assert build_curves(reports) == curves


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["epoch", "step", "loss"]), st.floats(allow_nan=True), max_size=3),
        max_size=20,
    )
)
def test_curves_always_go_forward(metrics: list[dict[str, float]]):
    curves = build_curves([entry(second, **values) for second, values in enumerate(metrics)])
    for curve in curves.metrics.values():
        positions = [x for x, _ in curve]
        assert positions == sorted(set(positions))
