"""The pages of docs/results, written from the runs that are shipped beside them.

    python -m tests.shipped_results       # writes docs/results/*.md and their tables again
    python -m tests.shipped_results runs/comparison-NAME-HASH/report NAME       # takes a report of `compare` in

Figures, curves and differences by episode need the runs' store and stay as they are, or out.
"""

import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.speed import time_unit
from arelu_meta.comparison.collect import activation_groups
from arelu_meta.reporting.content import Report, make_report
from arelu_meta.reporting.markdown import markdown_report
from arelu_meta.reporting.table import numbers_frame

ROOT = Path(__file__).parents[1]
RESULTS, PUBLISHED = ROOT / "docs" / "results", ROOT / "experiments" / "published"
CONTROLS = {"arelu_frozen": "learning", "relu_gain": "shape and learning", "arelu_unit": "gain"}
IDENTITY = {**CONTROLS, "identity": "nonlinearity and gain"}
LATER = "The primary comparison and the margin were declared after the first runs of these seeds, not before them."
SPLIT = "\n## Figures\n"


@dataclass(frozen=True)
class Shipped:
    """One page: what its experiment file says of the report, as it was when the runs were made."""

    name: str
    axes: tuple[str, ...]
    chance: float
    margin: float
    controls: dict[str, str] = field(default_factory=lambda: CONTROLS)
    metric: str = "test/accuracy"
    validation_metric: str | None = None
    other_metrics: dict[str, str] = field(default_factory=dict)
    published: tuple[str, ...] = ()
    budget: float = 1.0
    declared: bool = False
    """whether the experiment file had the primary comparison and the margin before these runs"""

    @property
    def page(self) -> Path:
        """The text."""
        return RESULTS / f"{self.name}.md"

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row per run."""
        return pd.read_csv(RESULTS / f"{self.name}_runs.csv")


VALIDATION = "validation/accuracy"
FINETUNED = {f"test/{name}": f"test/{name}" for name in ("no_finetune", "no_pretrain", "finetune_2", "finetune_3")}
PAGES = (
    Shipped("gain_controls", (), 10.0, 1.0, IDENTITY, published=("gain_controls",), declared=True),
    Shipped("glyphs_rates", ("inner_lr",), 20.0, 3.0, validation_metric=VALIDATION),
    Shipped("inner_rates", ("inner_lr",), 20.0, 3.0, validation_metric=VALIDATION),
    Shipped("learning_rates", ("lr",), 10.0, 1.0, validation_metric=VALIDATION),
    Shipped(
        "maml_mnist",
        ("shots",),
        20.0,
        3.0,
        other_metrics={"paper/best_batch_accuracy": "paper/best_batch_accuracy"},
        published=("maml_mnist",),
    ),
    Shipped(
        "maml_mnist_clip",
        ("episode_clip",),
        20.0,
        3.0,
        other_metrics={name: name for name in ("paper/best_batch_accuracy", "test/accuracy_area", "test/steps_to_60")},
        declared=True,
    ),
    Shipped(
        "mnist_first_epoch",
        ("optimizer", "lr"),
        10.0,
        1.0,
        IDENTITY,
        validation_metric=VALIDATION,
        published=("mnist_first_epoch_mean", "mnist_first_epoch_best"),
        declared=True,
    ),
    Shipped(
        "transfer_mnist_to_svhn_caption",
        (),
        10.0,
        3.0,
        metric="test/finetune_5",
        other_metrics=FINETUNED,
        budget=0.25,
    ),
)


def report_of(shipped: Shipped) -> Report:
    """Analyse the runs of a page."""
    old = shipped.page.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in old.partition("## Protocol")[2].splitlines() if " | " in line]
    title, question = old.split("\n\n")[0].removeprefix("# "), old.split("\n\n")[1].strip("*")
    figures = [pd.read_csv(PUBLISHED / f"{name}.csv", dtype={"lr": str}) for name in shipped.published]
    metrics = (shipped.metric, *shipped.other_metrics, VALIDATION)
    findings = Findings(
        name=shipped.name,
        title=title,
        question=question,
        runs=shipped.runs,
        axes=("activation", *shipped.axes),
        arm="activation",
        baseline="relu",
        metric=shipped.metric,
        other_metrics=shipped.other_metrics,
        validation_metric=shipped.validation_metric,
        units={metric: time_unit(metric) or "%" for metric in metrics},
        controls=shipped.controls,
        primary="arelu",
        margin=shipped.margin,
        chance=shipped.chance,
        groups=activation_groups() if figures else {},
        published=pd.concat(figures) if figures else None,
        budget=shipped.budget,
        protocol={fact[0]: fact[1] for fact in rows if fact[0] == "protocol"},
    )
    report = make_report(findings)
    return report if shipped.declared else replace(report, notes=(*report.notes, LATER))


def page_text(shipped: Shipped) -> str:
    """The page: verdict, notes and tables anew; banners of its own, figures and protocol as they are."""
    old, new = shipped.page.read_text(encoding="utf-8"), markdown_report(report_of(shipped), {})
    banners = [part for part in old.partition("\n## Verdict")[0].split("\n\n") if part.startswith("> ")]
    own = "".join(f"{part.strip()}\n\n" for part in banners if not part.startswith("> **Reduced budget"))
    before, verdict, after = new.partition("## Verdict\n")
    return before + own + verdict + after.partition("\n## Protocol\n")[0] + SPLIT + old.partition(SPLIT)[2]


def take_in(report: Path, name: str) -> None:
    """Put a report that `compare` wrote among the pages: text, table, runs, and figures under the page's name."""
    text = (report / "report.md").read_text(encoding="utf-8")
    for old in (RESULTS / "figures").glob(f"{name}*"):
        if re.fullmatch(rf"{name}(-(arms|over|curve).*)?", old.stem):
            old.unlink()
    for figure in re.findall(r"\(figures/([^)]+)\)", text):
        own = f"{name}-{figure}" if figure != "arms.svg" else f"{name}.svg"
        shutil.copy(report / "figures" / figure, RESULTS / "figures" / own)
        text = text.replace(f"(figures/{figure})", f"(figures/{own})")
    text = re.sub(r"(--data-root) \S+", r"\1 DATA", text)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    shutil.copy(report / "table.csv", RESULTS / f"{name}.csv")
    shutil.copy(report / "runs.csv", RESULTS / f"{name}_runs.csv")


if __name__ == "__main__":
    if sys.argv[1:]:
        take_in(Path(sys.argv[1]), sys.argv[2])
    for one in PAGES:
        text = page_text(one)
        table = numbers_frame(report_of(one).analysis)
        one.page.write_text(text, encoding="utf-8")
        (RESULTS / f"{one.name}.csv").write_text(table.to_csv(index=False), encoding="utf-8")
