# ruff: noqa: E501
"""docs/paper.md, written from the published figures, the shipped runs, and the figures and steps of `arelu_meta.paper`.

python -m tests.paper_page       # writes docs/paper.md again
"""

import pandas as pd

from arelu_meta.comparison.cells import is_same, parse_only
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.kinds.execution import seed_numbers
from arelu_meta.paper.campaign import STEPS, Step
from arelu_meta.paper.figures import FIGURES
from tests.paper_claims import claim_rows
from tests.published_cells import BUDGETS, RESULTS, ROOT, TABLES, Table, cells_of

PAGE = ROOT / "docs" / "paper.md"
HEAD = """# The AReLU paper, measured

Every table, figure and claim of Chen et al. 2020 (arXiv 2006.13858): the command that repeats it, what agrees with the paper and what does
not, what was measured and with which budget, ours beside published. Written by `python -m tests.paper_page` from `experiments/published/*.csv`,
`docs/results/*_runs.csv` and the lists of `arelu_meta.paper`; `tests/test_paper_page.py` works its numbers out again, so nothing here is
edited by hand. What the figures mean is in [findings](findings.md), how they are tested in [statistics](statistics.md); words are in the
[glossary](architecture.md#glossary).
"""
FIGURE_NOTES = {
    "attention": "right half; the left one is an illustration. ReLU and AReLU of one seed, the first test image, first activation: the paper does not say which",
    "alpha_beta_a": "MNIST-Conv on MNIST; the paper names alpha 0.25, 0.75, 0.9 and beta 1, 2, the others are ours; SGD 0.01 and 5 epochs are not in the paper; validation accuracy; drawn from seed 0",
    "alpha_beta_b": "from 0.25 and 1, as in the paper; epoch by epoch, range over seeds; drawn from seed 0",
    "alpha_beta_c": "last epoch, means over seeds; the shaded region is all that AReLU can be, where the paper only says range; drawn from seed 0",
    "mnistplot": "19 activations, SGD, 60,000 images, test accuracy after every epoch: as in the paper; drawn from seed 0",
    "converge": "six activations; the paper draws five networks without naming them, here are all six; 10,000 of 50,000 training images at hand; drawn from ReLU and AReLU in ResNet-18 alone, two epochs of 100 (`--budget 0.02`), seed 0",
    "gradcam": "first layer of ResNet-18, six test images evenly spread; the paper's choice of images is not known; drawn after two epochs of 100 (`--budget 0.02`), seed 0",
    "conv_mnist": "drawn from the network itself",
    "mnistplot_large": "both optimizers, 1e-2 and 1e-3, loss and accuracy: as in the paper; drawn from ReLU and AReLU with SGD at 1e-2 alone, seed 0",
    "mnistplot_small": "both optimizers, 1e-4 and 1e-5, loss and accuracy: as in the paper; drawn from SGD alone, seed 0",
    "seg_overlays": "ReLU above AReLU, the slices with the largest tumours; `segmentation_sample` where `segmentation` has no runs; drawn from seed 0, whose networks had not learned much in 240 steps (Dice 9 and 30 %)",
    "seg_losses": "training loss over steps, validation loss over epochs; three seeds of `segmentation_sample`",
}


def page() -> str:
    """The whole page."""
    cells = {table.label: cells_of(table) for table in TABLES}
    parts = [HEAD, _counts(cells), _tables(cells), *_side_by_side(cells), _figures(), _claims(), _campaign()]
    return "\n".join(parts)


def _rows(header: str, rows: list[list[str]]) -> str:
    names = header.split(" | ")
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _counts(cells: dict[str, pd.DataFrame]) -> str:
    """How many published cells have ours beside them, by budget."""
    rows, together = [], pd.concat(cells.values())
    for label, table in [*cells.items(), ("**all**", together)]:
        by_budget = [int((table["budget"] == budget).sum()) for budget in BUDGETS]
        rows.append([label, str(len(table)), *map(str, by_budget), str(len(table) - sum(by_budget))])
    beside = int(together["ours"].notna().sum())
    full = int(together["budget"].isin(BUDGETS[:3]).sum())
    said = (
        f"\n## How much of it is measured\n\n**{beside} of the {len(together)} published cells have ours beside them, {full} of them at the full "
        "length of the training.** By what ours rests on; a cell is one number of a table.\n\n"
    )
    return said + _rows(" | ".join(["table", "cells", *BUDGETS, "not measured"]), rows)


def _tables(cells: dict[str, pd.DataFrame]) -> str:
    rows = [
        [f"`{table.label}`", f"`{table.command}`", table.agreement, _measured(table, cells[table.label]), verdict(cells[table.label])]
        for table in TABLES
    ]  # fmt: skip
    return "\n## Tables\n\n" + _rows("table | command | settings | measured so far | verdict", rows)


def _measured(table: Table, cells: pd.DataFrame) -> str:
    """Experiments, seeds, share of the data, commits."""
    texts = []
    for source in table.sources:
        own = cells[cells["experiment"] == source.experiment]
        if len(own):
            seeds = sorted({int(n) for n in own["n"]})
            count = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
            share = "" if source.share == 1 else f", {100 * source.share:g} % of the training"
            images = f", {source.images}" if source.images else ""
            page = f"[`{source.experiment}`](results/{source.experiment}.md)"
            texts.append(
                f"{page}: {len(own)} cells, {'one run' if count == '1' else f'{count} runs'} each{share}{images}{_commits(source.runs)}"
            )
    return "; ".join(texts) or "nothing"


def _commits(runs: pd.DataFrame | None) -> str:
    if runs is None or "commit" not in runs:
        return "; several commits, named on its page"
    return "; commit " + ", ".join(sorted({str(commit)[:7] for commit in runs["commit"].dropna()}))


def verdict(cells: pd.DataFrame) -> str:
    """How near ours are, and whether AReLU is above ReLU where both are measured, in words."""
    beside = cells.dropna(subset=["ours"])
    if beside.empty:
        return "not measured"
    apart = (beside["ours"] - beside["published"]).abs()
    words = f"{int((apart <= 2).sum())} of {len(beside)} cells within 2 points of the published, median distance {apart.median():.1f}"
    axes = [name for name in cells.columns[: cells.columns.get_loc("metric")] if name != "activation"]
    keys = beside.assign(place=beside[[*axes, "metric"]].fillna("").astype(str).agg(" ".join, axis=1))
    ours, published = (keys.pivot(index="place", columns="activation", values=name) for name in ("ours", "published"))
    if {"relu", "arelu"} <= set(ours):
        both = ours[["relu", "arelu"]].dropna().index
        ahead = [int((table.loc[both, "arelu"] > table.loc[both, "relu"]).sum()) for table in (ours, published)]
        words += f"; AReLU above ReLU in {ahead[0]} of {len(both)} columns, published in {ahead[1]}"
    return words


def _side_by_side(cells: dict[str, pd.DataFrame]) -> list[str]:
    parts = [
        "\n## Ours beside published\n\nIn per cent, ours first, the published figure in brackets; \\* ours is of one run. Columns without any of ours are left out.\n"
    ]
    for label, table in cells.items():
        beside = table.dropna(subset=["ours"])
        if beside.empty:
            continue
        axes = [name for name in table.columns[: table.columns.get_loc("metric")] if name != "activation"]
        columns = list(dict.fromkeys(_place(row, axes) for _, row in beside.iterrows()))
        texts = {
            (row["activation"], _place(row, axes)): f"{row['ours']:.1f} ({row['published']:.1f})"
            + " \\*" * int(row["n"] == 1)
            for _, row in beside.iterrows()
        }
        arms = list(dict.fromkeys(beside["activation"]))
        rows = [[f"`{arm}`", *(texts.get((arm, column), "") for column in columns)] for arm in arms]
        parts.append(f"### {label}\n\n" + _rows(" | ".join(["activation", *columns]), rows))
    return parts  # fmt: skip


def _place(row: pd.Series, axes: list[str]) -> str:
    values = [f"{axis} {row[axis]}" if axis not in ("optimizer", "backbone") else str(row[axis]) for axis in axes]
    return ", ".join(value for value in values if not value.endswith("nan")) or str(row["metric"])


def _figures() -> str:
    drawn = {path.stem for path in (RESULTS / "figures" / "paper").glob("*.png")}
    rows = []
    for figure in FIGURES:
        state = f"[drawn](results/figures/paper/{figure.name}.png)" if figure.name in drawn else "no runs kept yet"
        runs = f"`{figure.command}`" if figure.experiment else "needs no runs"
        rows.append([f"`{figure.name}`", figure.shows, runs, FIGURE_NOTES[figure.name], state])
    return (
        "\n## Figures\n\n`python -m arelu_meta.paper figures --data-root DATA` draws all of them from the runs in the MLflow store, into "
        "`pictures/paper/`, and names what is missing with the command that makes it. Parts of one figure share its label.\n\n"
        + _rows("figure | shows | runs | settings | state", rows)
    )


def _claims() -> str:
    return "\n## Claims\n\n" + _rows("the paper says | what tests it | ours so far | verdict", claim_rows())


def _finished(step: Step) -> int:
    """How many runs of a step are shipped."""
    path = RESULTS / f"{step.experiment}_runs.csv"
    if step.budget < 1 or not path.is_file():
        return 0
    runs = pd.read_csv(path)
    for axis, values in parse_only(step.only).items():
        chosen = [any(is_same(value, word) for word in values) for value in runs[axis]]
        runs = runs[pd.Series(chosen, index=runs.index, dtype=bool)]  # a list without elements would choose columns
    seeds = seed_numbers(step.seeds) if step.seeds else read_experiment(step.experiment).seeds
    return int(runs["seed"].isin(seeds).sum())


def _campaign() -> str:
    rows, total = [], 0.0
    for step in STEPS:
        left = step.cells - _finished(step)
        hours = left * step.seconds / 3600
        total += hours
        command = " ".join(["compare", *step.words()])
        rows.append(
            [
                f"`{step.name}`",
                f"`{command}`",
                str(step.cells),
                str(left),
                f"{step.seconds:g}",
                step.basis,
                f"{hours:.1f}",
                f"{total:.1f}",
            ]
        )
    return (
        "\n## What is left to run\n\n`python -m arelu_meta.paper run --workers 2 --data-root DATA` runs these steps in this order, a thread for each run. "
        "It can be stopped at any time and goes on when it is started again: what has finished is not repeated. `--hours 20` begins no "
        "further step after 20 hours, `--shard 1/2` runs half of every step, and names of steps run these alone. Where the time does not reach, "
        "steps at the end fall away: fewer arms before fewer seeds. Runs that are not left are in docs/results, also of earlier commits. Hours are of one core.\n\n"
        + _rows("step | python -m arelu_meta. | runs | left | s a run | from | core-hours left | together", rows)
    )  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
