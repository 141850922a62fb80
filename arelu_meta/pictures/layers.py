"""Figures over training: what every layer learns, and how the start of alpha and beta decides the accuracy."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from arelu_meta.errors import InputError
from arelu_meta.pictures.palette import COLOURS

Course = Sequence[tuple[int, float]]
DEPTH = "viridis"  # even in lightness, so that depth reads without colour too
LABELS = {
    "alpha": "alpha, as learned",
    "beta": "beta, as learned",
    "rms": "activation RMS",
    "gradient": "gradient norm of the output",
    "dead_alpha": "share of dead alpha",
}


def layer_course_figure(courses: Mapping[str, Mapping[str, Course]], *, title: str, n: int) -> Figure:
    """Draw one panel per quantity and in it one line per layer over the epochs: quantity -> layer -> (epoch, value).

    Up to seven layers have colours and names; more are coloured by depth. `n` is the number of probe images.
    """
    layers = list(dict.fromkeys(layer for course in courses.values() for layer in course))
    columns = min(2, len(courses))
    rows = -(-len(courses) // columns)
    figure = Figure(figsize=(4.6 * columns + 1.2, 2.9 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(courses) :]:
        axes.set_visible(False)
    for axes, (quantity, course) in zip(grid.flat, courses.items(), strict=False):
        for layer, points in course.items():
            steps, values = zip(*points, strict=True) if points else ((), ())
            axes.plot(steps, values, label=layer, **_look(layers.index(layer), len(layers), len(points)))
        axes.set(xlabel="epoch", ylabel=LABELS.get(quantity, quantity))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    if len(layers) <= len(COLOURS):
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", title="layer", frameon=False, fontsize="small")
    else:
        scale = ScalarMappable(Normalize(1, len(layers)), DEPTH)
        figure.colorbar(scale, ax=grid, label=f"layer, first to last of {len(layers)}", shrink=0.8)
    figure.suptitle(f"{title}\n(RMS and gradient on n = {n} training images)", fontsize="medium")
    return figure


def start_grid_figure(rows: Iterable[Mapping[str, Any]], *, title: str) -> Figure:
    """Draw accuracy over epochs for starts of alpha and beta, as in the paper's figure of its initialisation study.

    Each row has `alpha`, `beta`, `epoch` and `accuracy` (a share); rows with the same first three are seeds, drawn as
    their mean with the band from the lowest to the highest. One panel per alpha, one line per beta.
    """
    found: dict[tuple[float, float], dict[int, list[float]]] = {}
    for row in rows:
        missing = [key for key in ("alpha", "beta", "epoch", "accuracy") if key not in row]
        if missing:
            raise InputError(f"a row of the grid lacks {missing[0]!r}; it has {', '.join(row) or 'nothing'}")
        curve = found.setdefault((float(row["alpha"]), float(row["beta"])), {})
        curve.setdefault(int(row["epoch"]), []).append(float(row["accuracy"]))
    if not found:
        raise InputError("the grid has no rows; run some starts of alpha and beta first")
    alphas, betas = sorted({alpha for alpha, _ in found}), sorted({beta for _, beta in found})
    figure = Figure(figsize=(2.7 * len(alphas) + 1.4, 3.6), layout="constrained")
    panels = figure.subplots(1, len(alphas), sharey=True, squeeze=False)[0]
    for axes, alpha in zip(panels, alphas, strict=True):
        for number, beta in enumerate(betas):
            curve = found.get((alpha, beta), {})
            epochs = sorted(curve)
            low, mean, high = (
                [100 * float(take(curve[epoch])) for epoch in epochs] for take in (np.min, np.mean, np.max)
            )
            look = _look(number, len(betas), len(epochs))
            axes.plot(epochs, mean, label=f"{beta:g}", **look)
            axes.fill_between(epochs, low, high, color=look["color"], alpha=0.2, linewidth=0)
        axes.set(xlabel="epoch", title=f"alpha = {alpha:g}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy (%)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", title="beta", frameon=False)
    counts = sorted({len(values) for curve in found.values() for values in curve.values()})
    runs = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    figure.suptitle(f"{title}\n({runs} per start; band: lowest to highest)", fontsize="medium")
    return figure


def _look(number: int, total: int, points: int) -> dict[str, Any]:
    """Colour by name while there are names enough, by depth beyond; points where a line would be short."""
    colour = COLOURS[number] if total <= len(COLOURS) else colormaps[DEPTH](number / (total - 1))
    return {"color": colour, "marker": "o" if points < 12 else None, "markersize": 3, "linewidth": 1.3}
