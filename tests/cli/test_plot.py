from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.plot import Panel, Picture, build_picture, format_number, spread, write_plot
from trainwright.errors import UsageError, UserError
from trainwright.runner.progress.history import Curves, HistoryEntry

DOWN = [(1.0, 2.0), (2.0, 1.0)]
FAR_DOWN = [(1.0, 2.0), (2.0, 0.01)]
UP = [(1.0, 0.5), (2.0, 0.9)]
LARGE = [(1.0, 200.0), (2.0, 100.0)]


def panel(title: str, curves: dict[str, list[tuple[float, float]]], **more: bool) -> Panel:
    return Panel(title=title, curves=curves, **more)


PICTURES = {
    "nothing": ({}, [], []),
    "loss and accuracy": (
        {"accuracy": UP, "loss": DOWN},
        [panel("loss", {"loss": DOWN}), panel("accuracy", {"accuracy": UP}, is_share=True)],
        [],
    ),
    "losses of one magnitude share a panel": (
        {"train_loss": DOWN, "val_loss": UP},
        [panel("loss", {"train_loss": DOWN, "val_loss": UP})],
        [],
    ),
    "a loss of another magnitude has its own": (
        {"loss": DOWN, "kl_loss": LARGE},
        [panel("loss", {"loss": DOWN}), panel("kl_loss", {"kl_loss": LARGE})],
        [],
    ),
    "a loss over decades is drawn on a logarithmic axis": (
        {"loss": FAR_DOWN},
        [panel("loss", {"loss": FAR_DOWN}, is_log=True)],
        [],
    ),
    "accuracies share a panel": (
        {"train_acc": UP, "val_acc": UP},
        [panel("accuracy", {"train_acc": UP, "val_acc": UP}, is_share=True)],
        [],
    ),
    "accuracy and F1 are scores": (
        {"acc": UP, "f1": UP},
        [panel("scores", {"acc": UP, "f1": UP}, is_share=True)],
        [],
    ),
    "an accuracy in percent is no share of 1": (
        {"accuracy": LARGE},
        [panel("accuracy", {"accuracy": LARGE})],
        [],
    ),
    "others have a panel each, in their order": (
        {"lr": DOWN, "grad_norm": LARGE},
        [panel("lr", {"lr": DOWN}), panel("grad_norm", {"grad_norm": LARGE})],
        [],
    ),
    "a metric reported once is told beside the curves": (
        {"loss": DOWN, "train_runtime": [(2.0, 1234.5678)]},
        [panel("loss", {"loss": DOWN})],
        ["train_runtime 1235"],
    ),
    "where all were reported once they are drawn": (
        {"loss": DOWN[:1]},
        [panel("loss", {"loss": DOWN[:1]})],
        [],
    ),
    "what has no room is named": (
        {f"m{index}": DOWN for index in range(8)},
        [panel(f"m{index}", {f"m{index}": DOWN}) for index in range(6)],
        ["not drawn: m6, m7"],
    ),
}


@pytest.mark.parametrize(("metrics", "panels", "remarks"), PICTURES.values(), ids=PICTURES)
def test_pictures(metrics: dict[str, list[tuple[float, float]]], panels: list[Panel], remarks: list[str]):
    assert build_picture(Curves(axis="epoch", metrics=metrics)) == Picture(
        axis="epoch", panels=panels, remarks=remarks
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.0156212, "0.01562"), (100.0, "100"), (1e-7, "1e-07"), (0.97, "0.97")]
)
def test_numbers_are_short(value: float, text: str):
    assert format_number(value) == text


SPREADS = {
    "apart already": ([0.1, 0.9], [0.1, 0.9]),
    "two at one height": ([0.5, 0.5], [0.45, 0.55]),
    "order is kept": ([0.52, 0.5], [0.56, 0.46]),
    "a crowd": ([0.5, 0.5, 0.5], [0.4, 0.5, 0.6]),
    "two crowds that meet": ([0.5, 0.5, 0.6, 0.6], [0.4, 0.5, 0.6, 0.7]),
    "one": ([0.3], [0.3]),
}


@pytest.mark.parametrize(("heights", "placed"), SPREADS.values(), ids=SPREADS)
def test_labels_are_moved_apart(heights: list[float], placed: list[float]):
    assert spread(heights, 0.1) == pytest.approx(placed)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_labels_never_overlap_and_keep_their_order(heights: list[float]):
    placed = spread(heights, 0.075)
    ranked = sorted(placed)
    assert all(upper - lower > 0.0749 for lower, upper in pairwise(ranked))
    pairs = sorted(zip(heights, placed, strict=True))
    assert [y for _, y in pairs] == ranked


REPORTS = [
    HistoryEntry(time=second, metrics={"epoch": second, "loss": 2.0 / second, "accuracy": 1 - 0.5 / second})
    for second in range(1, 11)
]


@pytest.mark.parametrize(
    ("suffix", "beginning"), [(".png", b"\x89PNG\r\n\x1a\n"), (".pdf", b"%PDF-"), (".PNG", b"\x89PNG")]
)
def test_a_file_of_the_wanted_format_is_written(tmp_path: Path, suffix: str, beginning: bytes):
    path = tmp_path / f"metrics{suffix}"
    write_plot(path, REPORTS, "demo")
    assert path.read_bytes().startswith(beginning)


def test_names_axes_and_last_values_are_in_the_picture(tmp_path: Path):
    path = tmp_path / "metrics.svg"
    write_plot(path, REPORTS, "demo <1>", "2 nodes")
    text = path.read_text()
    for wanted in ("demo &lt;1&gt;", "2 nodes", "loss", "accuracy", "epoch", "0.2", "95 %"):
        assert f">{wanted}<" in text


@pytest.mark.parametrize("name", ["metrics", "metrics.bmp", "metrics.png.txt"])
def test_a_format_that_there_is_not_is_a_usage_error(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=r"end in \.png, \.svg or \.pdf"):
        write_plot(tmp_path / name, REPORTS, "demo")


def test_a_job_that_reported_no_numbers_is_told_how_to(tmp_path: Path):
    with pytest.raises(UserError, match=r"demo has reported no numbers to draw; report some with"):
        write_plot(tmp_path / "metrics.png", [HistoryEntry(time=1.0, metrics={"step": 1})], "demo")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot write .*metrics\.png: No such file or directory"):
        write_plot(tmp_path / "absent" / "metrics.png", REPORTS, "demo")


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [-5.0, -1.0], [1e-300, 1e300], [1.7e308, -1.7e308], [5e-324, 1.0]]
)
def test_no_values_are_too_odd_to_draw(tmp_path: Path, values: list[float]):
    reports = [HistoryEntry(time=i, metrics={"step": i, "loss": y}) for i, y in enumerate(values)]
    write_plot(tmp_path / "metrics.png", reports, "x" * 200)
