"""The metrics that a job reported as a picture.

One panel for each kind of metric, because a loss, an accuracy and a learning rate share an axis of time and
nothing else. What to draw is decided by `build_panels`, which is pure; `write_plot` draws it with matplotlib,
without a display. Colours are Okabe and Ito's, which colour-blind readers tell apart; the lines of one panel
differ in their dashes too, and each is named where it ends rather than in a legend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainwright.errors import UsageError, UserError
from trainwright.runner.progress.history import Curves, Reported, build_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = (".png", ".svg", ".pdf")
_MOST_PANELS = 6
_MOST_LINES = 4
_LOG_RATIO = 50.0  # a metric that spans more is drawn on a logarithmic axis
_FEW_DECADES = 1000.0  # up to here 2 and 5 are marked on it, beyond only powers of ten
_HUGE = 1e30  # a training that diverges reaches numbers that no axis can span
_SAME_SCALE = 20.0  # losses further apart than this get panels of their own

_LOSS = re.compile(r"loss|error|perplexity|nll", re.IGNORECASE)
_SHARE = re.compile(r"acc|f1|auc|precision|recall|iou|score|top_?\d", re.IGNORECASE)

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_MANY = 150  # points, from which on a thick line hides its own ups and downs
_LABEL_HEIGHT = 0.075  # of a panel
# In inches.
_PANEL_WIDTH, _PANEL_HEIGHT = 3.9, 2.6
_LEFT, _BELOW, _HEAD, _MARGIN = 0.8, 0.95, 1.15, 0.25

_INK, _GREY, _GRID = "#222222", "#767676", "#e6e6e6"
_AXES = {"epoch": "epoch", "step": "step", "minutes": "minutes since the first report"}

Curve = list[tuple[float, float]]


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Curves that share both axes. `is_share` says that the values are parts of 1; `is_log`, the y axis."""

    title: str
    curves: dict[str, Curve]
    is_share: bool = False
    is_log: bool = False


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn. `remarks` names what has no panel."""

    axis: str
    panels: list[Panel]
    remarks: list[str]


def write_plot(path: Path, reports: Sequence[Reported], title: str, subtitle: str = "") -> None:
    """Draw the reported metrics into a file; its suffix says the format.

    Raises UsageError for a format that there is not, UserError where nothing was reported, the file cannot be
    written or matplotlib is missing.
    """
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"cannot draw {path}: the name has to end in .png, .svg or .pdf")
    picture = build_picture(build_curves(reports))
    if not picture.panels:
        hint = "report some with `trainwright.progress.report(metrics=...)`"
        raise UserError(f"{title} has reported no numbers to draw; {hint}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UserError("drawing needs matplotlib; install `trainwright[plot]`") from error
    # A file needs no display; the context leaves the settings of a program that imports us alone.
    with mpl.rc_context({"font.family": "DejaVu Sans", "svg.fonttype": "none", "axes.edgecolor": _GREY}):
        _draw(path, picture, title, subtitle)


def build_picture(curves: Curves) -> Picture:
    """Choose the panels: losses, then shares such as accuracy, then the rest one by one, as reported."""
    drawn = {name: curve for name, curve in curves.metrics.items() if len(curve) > 1}
    single = {name: curve[0][1] for name, curve in curves.metrics.items() if len(curve) == 1}
    if not drawn:  # one report only: dots are better than nothing
        drawn, single = curves.metrics, {}
    losses = {name: curve for name, curve in drawn.items() if _LOSS.search(name)}
    shares = {name: curve for name, curve in drawn.items() if name not in losses and _is_share(name, curve)}
    panels = [
        *_build_loss_panels(losses),
        *_build_share_panels(shares),
        *(
            Panel(title=name, curves={name: curve}, is_log=_spans_decades([curve]))
            for name, curve in drawn.items()
            if name not in losses and name not in shares
        ),
    ]
    remarks = [f"{name} {format_number(value)}" for name, value in single.items()]
    left_out = [name for panel in panels[_MOST_PANELS:] for name in panel.curves]
    if left_out:
        remarks.append(f"not drawn: {', '.join(left_out)}")
    return Picture(axis=curves.axis, panels=panels[:_MOST_PANELS], remarks=remarks)


def format_number(value: float) -> str:
    """Return a value as people read it: four significant digits, no needless zeros."""
    return f"{value:.4g}"


def _format_percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _build_loss_panels(losses: dict[str, Curve]) -> list[Panel]:
    """Group losses of one magnitude, so that training and validation can be compared."""
    groups: list[dict[str, Curve]] = []
    for name, curve in losses.items():
        for group in groups:
            if len(group) < _MOST_LINES and _are_comparable(curve, next(iter(group.values()))):
                group[name] = curve
                break
        else:
            groups.append({name: curve})
    return [
        Panel(
            title="loss" if len(group) > 1 else next(iter(group)),
            curves=group,
            is_log=_spans_decades(list(group.values())),
        )
        for group in groups
    ]


def _build_share_panels(shares: dict[str, Curve]) -> list[Panel]:
    names = list(shares)
    groups = [names[start : start + _MOST_LINES] for start in range(0, len(names), _MOST_LINES)]
    return [
        Panel(
            title=_name_shares(group),
            curves={name: shares[name] for name in group},
            is_share=True,
        )
        for group in groups
    ]


def _name_shares(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return "accuracy" if all("acc" in name.lower() for name in names) else "scores"


def _is_share(name: str, curve: Curve) -> bool:
    return _SHARE.search(name) is not None and all(0 <= y <= 1 for _, y in curve)


def _are_comparable(one: Curve, other: Curve) -> bool:
    smaller, larger = sorted(max(abs(y) for _, y in curve) for curve in (one, other))
    return larger <= smaller * _SAME_SCALE


def _spans_decades(curves: list[Curve], ratio: float = _LOG_RATIO) -> bool:
    values = [y for curve in curves for _, y in curve]
    return min(values) > 1 / _HUGE and max(values) < _HUGE and max(values) / min(values) > ratio


def _draw(path: Path, picture: Picture, title: str, subtitle: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(picture.panels)
    columns = min(count, 2 if count in {2, 4} else 3)
    rows = math.ceil(count / columns)
    longest = max(len(label) for panel in picture.panels for label in _build_labels(panel).values())
    # All in inches: a panel is as large as another, whatever is written around it.
    right = 0.2 + 0.085 * longest
    cell_width, cell_height = _LEFT + _PANEL_WIDTH + right, _PANEL_HEIGHT + _BELOW
    foot = 0.1 if picture.remarks else -0.3
    width, height = columns * cell_width, _HEAD + rows * cell_height + foot
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    FigureCanvasAgg(figure)

    figure.text(_MARGIN / width, 1 - 0.2 / height, title, size=15, weight="bold", color=_INK, va="top")
    figure.text(_MARGIN / width, 1 - 0.53 / height, subtitle, size=9.5, color=_GREY, va="top")
    remarks = "     ".join(picture.remarks)
    figure.text(_MARGIN / width, 0.14 / height, remarks, size=8.5, color=_GREY, va="bottom")

    positions = [x for panel in picture.panels for curve in panel.curves.values() for x, _ in curve]
    first_colour = 0
    for index, panel in enumerate(picture.panels):
        row, column = divmod(index, columns)
        x, y = column * cell_width + _LEFT, height - _HEAD - row * cell_height - _PANEL_HEIGHT
        axes = figure.add_axes((x / width, y / height, _PANEL_WIDTH / width, _PANEL_HEIGHT / height))
        _draw_panel(axes, panel, first_colour)
        pad = 0.02 * (max(positions) - min(positions)) or 0.5
        axes.set_xlim(min(positions) - pad, max(positions) + pad)
        axes.set_xlabel(_AXES[picture.axis], color=_GREY, size=9)
        first_colour += len(panel.curves)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _draw_panel(axes: Axes, panel: Panel, first_colour: int) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_title(panel.title, loc="left", size=11, color=_INK, pad=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=_GREY, labelsize=8.5, length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if panel.is_log:
        axes.set_yscale("log")
        few = (1, 2, 5) if not _spans_decades(list(panel.curves.values()), _FEW_DECADES) else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=few))
        axes.yaxis.set_minor_locator(NullLocator())
    unit = _format_percent if panel.is_share else format_number
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    labels = _build_labels(panel)
    ends: list[_End] = []
    for index, (name, curve) in enumerate(panel.curves.items()):
        colour = _COLOURS[(first_colour + index) % len(_COLOURS)]
        xs = [x for x, _ in curve]
        ys = [max(-_HUGE, min(_HUGE, y)) for _, y in curve]
        axes.plot(xs, ys, color=colour, linestyle=_DASHES[index], linewidth=1.2 if len(xs) > _MANY else 2)
        axes.plot(xs[-1:], ys[-1:], "o", color=colour, markersize=5)
        ends.append(_End(labels[name], xs[-1], ys[-1], colour))
    axes.margins(y=0.08)
    low, high = axes.get_ylim()  # asking also settles the limits, which the labels are placed by
    if panel.is_share:
        axes.set_ylim(max(low, -0.02), min(high, 1.02))
    _label_ends(axes, ends)


def _build_labels(panel: Panel) -> dict[str, str]:
    """Return what is written at the end of each curve: its last value, and its name if it is not alone."""
    labels = {}
    for name, curve in panel.curves.items():
        value = curve[-1][1]
        text = _format_percent(value) if panel.is_share else format_number(value)
        labels[name] = text if len(panel.curves) == 1 else f"{text}  {name:.32}"
    return labels


class _End(msgspec.Struct, frozen=True):
    """Where a curve ends: its last point, and the label that goes beside it."""

    label: str
    x: float
    y: float
    colour: str


def _label_ends(axes: Axes, ends: Sequence[_End]) -> None:
    """Write each curve's last value beside its end, apart from each other where the ends are close."""
    to_panel = axes.transData + axes.transAxes.inverted()
    heights = [float(to_panel.transform((end.x, end.y))[1]) for end in ends]
    for end, height in zip(ends, spread(heights, _LABEL_HEIGHT), strict=True):
        axes.text(
            1.025,
            height,
            end.label,
            transform=axes.transAxes,
            color=end.colour,
            size=9,
            va="center",
            weight="bold",
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return the heights, in the same order, moved as little as needed to be at least `gap` apart."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    # Neighbours that are too close become one block around their mean; blocks that then touch are joined.
    blocks: list[list[int]] = []
    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and _bottom(blocks[-1], heights, gap) < _top(blocks[-2], heights, gap) + gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = [0.0] * len(heights)
    for block in blocks:
        start = _bottom(block, heights, gap)
        for position, index in enumerate(block):
            placed[index] = start + position * gap
    return placed


def _bottom(block: Sequence[int], heights: Sequence[float], gap: float) -> float:
    mean = sum(heights[index] for index in block) / len(block)
    return mean - gap * (len(block) - 1) / 2


def _top(block: Sequence[int], heights: Sequence[float], gap: float) -> float:
    return _bottom(block, heights, gap) + gap * (len(block) - 1)
