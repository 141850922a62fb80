"""Curves of many runs in panels beside each other: the mean over seeds, and the range of the seeds as a band."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from arelu_meta.pictures.figures import COLOURS

BLUE, VERMILION, *REST, BLACK = COLOURS
STYLES = tuple((colour, dash) for dash in ("-", "--", ":") for colour in (VERMILION, BLUE, *REST))
"""Colour and dash of a line by its number; black is left to the baseline."""
MARKED_BELOW = 12  # a short line is hardly seen
LEGEND_LINE = 0.19  # inches that a name takes


@dataclass(frozen=True)
class Panel:
    """One panel: lines by name, each a table of values by step (rows) and seed (columns)."""

    title: str
    ylabel: str
    lines: Mapping[str, pd.DataFrame]
    xlabel: str = "epoch"


def curve_panels(
    panels: Sequence[Panel], *, title: str, columns: int = 2, baseline: str = "relu", subject: str = "arelu"
) -> Figure:
    """Draw panels whose lines have the same style in each of them, under one legend.

    Args:
        panels: what is drawn, row by row
        title: what is written above, to which the number of seeds is added
        columns: panels in a row
        baseline: the line that is drawn in black
        subject: the line that is drawn in vermilion

    Returns:
        The figure, drawn off screen. Steps that not all seeds of a line reached are left out of it.

    >>> line = pd.DataFrame({0: [1.0, 3.0], 1: [2.0, 4.0]}, index=[1, 2])
    >>> figure = curve_panels([Panel("a", "loss", {"relu": line})], title="Two seeds")
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [1.5, 3.5]
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    height = 2.7 * rows + 0.6
    beside = -(-len(names) // int(height / LEGEND_LINE))  # columns of the legend
    figure = Figure(figsize=(3.5 * columns + 1.6 * beside, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    coloured = sorted((name for name in names if name != baseline), key=lambda name: name != subject)
    styles = dict(zip(coloured, itertools.cycle(STYLES), strict=False))
    for axes, panel in zip(grid.flat, panels, strict=False):
        for name, table in panel.lines.items():
            _draw_line(axes, name, table.dropna(), *styles.get(name, (BLACK, "-")), bold=name in (subject, baseline))
        axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no half step
        axes.grid(alpha=0.3)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.lines}
    shown = [handles[name] for name in names]
    figure.legend(shown, names, loc="outside right upper", frameon=False, fontsize="small", ncols=beside)
    counts = sorted({table.shape[1] for panel in panels for table in panel.lines.values()})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    said = "1 seed" if seeds == "1" else f"{seeds} seeds: mean and range"
    figure.suptitle(f"{title} (n = {said})", fontsize="medium")
    return figure


def _draw_line(axes: Axes, name: str, table: pd.DataFrame, colour: str, dash: str, *, bold: bool) -> None:
    """Draw the mean over the columns, and their range where there are several; bold lines lie above the others."""
    marker = "o" if len(table) < MARKED_BELOW else None
    shown: dict[str, Any] = {"label": name, "color": colour, "linestyle": dash, "linewidth": 2.2 if bold else 1.3}
    shown |= {"zorder": 3 if bold else 2}
    shown |= {"marker": marker, "markersize": 3}
    axes.plot(table.index, table.mean(axis=1), **shown)
    if table.shape[1] > 1:
        axes.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, linewidth=0)
