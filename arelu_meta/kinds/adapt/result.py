"""What an adaptation gives back: the classifier, what was chosen, and how well it does, method by method."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from arelu_meta.analysis.estimates import (
    Estimate,
    PairedDifference,
    holm,
    mean_interval,
    paired_difference,
    proportion_interval,
)
from arelu_meta.console.tables import text_table
from arelu_meta.kinds.adapt.choosing import STRENGTH_NAMES, Choice, best_of
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.kinds.results import HELD_OUT, Result, block, unverified_rows, where_to_look


@dataclass(frozen=True, eq=False)
class DrawOutcome:
    """Answers in one draw, (n,) class numbers each: to held-out images, or by cross-validation where there are none.

    `answers` are those of every method at its chosen strength, `selected` those of the method that was chosen; in
    cross-validation both are chosen anew in every fold. `choices` are those made on all images that are learned from,
    `footprints` what they cost: parameters moved, bytes stored.
    """

    labels: np.ndarray
    answers: dict[str, np.ndarray]
    selected: np.ndarray
    choices: dict[str, Choice]
    footprints: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def best(self) -> Choice:
        """The choice among all methods, made on all images that are learned from."""
        return best_of(list(self.choices.values()))

    def accuracy(self, method: str = "") -> float:
        """Share of right answers of a method, or of the one that was chosen."""
        return float(((self.answers[method] if method else self.selected) == self.labels).mean())


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdaptResult(Result):
    """A classifier made of a pretrained network and a head, chosen inside the images that it was fitted to.

    `choice` is what the network of the result is made of: that of the first draw. `computed` tells of how many images
    features were computed, of how many in all; the others came from the cache. `view` is the saved view of the
    MLflow UI that shows draws and methods side by side, where there is one.
    """

    spec: AdaptSpec
    class_names: tuple[str, ...]
    held_out: bool
    draws: list[DrawOutcome]
    choice: Choice
    support_size: int
    feature_count: int
    computed: tuple[int, int]
    seconds: float
    view: str = ""

    @property
    def final(self) -> str:
        """What the metrics of the result are named after: nothing cross-validated passes for a test."""
        return "test" if self.held_out else "cross_validation"

    @cached_property
    def test(self) -> Estimate:
        """Accuracy of what was chosen, with its 95 % interval: over draws, or Wilson's over images of the one draw."""
        return self.estimate()

    @property
    def headline(self) -> str:
        """The accuracy, in words."""
        return f"{'test' if self.held_out else 'cross-validated'} accuracy {_percent(self.test)}"

    def estimates(self) -> dict[str, Estimate]:
        """Give the accuracy of what was chosen, and of every method, over draws or images."""
        name = f"{self.final}/accuracy"
        return {name: self.test} | {f"{name}_{method}": self.estimate(method) for method in self.spec.methods.arms}

    def as_dict(self) -> dict[str, Any]:
        """Everything for a script, as for any run; with the classes and what was chosen."""
        chosen = {"method": self.choice.method, "strength": self.choice.strength}
        return super().as_dict() | {"chosen": chosen, "classes": list(self.class_names)}

    @property
    def baseline(self) -> str:
        """The method that others are compared with: `linear`, which fits the head alone, or the first there is."""
        arms = self.spec.methods.arms
        return "linear" if "linear" in arms else arms[0]

    def differences(self, baseline: str = "") -> dict[str, PairedDifference]:
        """Accuracy of every method less that of `baseline`, paired on draws; empty with one draw or one method."""
        import pandas as pd

        arms, baseline = self.spec.methods.arms, baseline or self.baseline
        series = {name: pd.Series([draw.accuracy(name) for draw in self.draws]) for name in arms}
        others = [name for name in arms if name != baseline and len(self.draws) > 1]
        return {name: paired_difference(series[name], series[baseline]) for name in others}

    def footprints(self) -> dict[str, tuple[int, int]]:
        """Of every method parameters of the network that moved, and bytes to store besides it, in the first draw."""
        return self.draws[0].footprints

    def report(self) -> str:
        """Say what was chosen, how well it does, against what, and how to use it."""
        spec, choice, test = self.spec, self.choice, self.test
        over = f"n = {test.n}, 95 % interval over {'draws' if len(self.draws) > 1 else 'images'}"
        how = over if self.held_out else f"{over}; all choices made anew in every fold"
        rows = [(self.headline.partition(" accuracy")[0] + " accuracy", f"{_percent(test)}, {how}")]
        rows.append(("chance", f"{100 / len(self.class_names):.2f} %"))
        strength = f"{choice.method} ({STRENGTH_NAMES[choice.method]} = {choice.strength})"
        which = " in the first draw, which the stored model is of" if len(self.draws) > 1 else ""
        rows.append(
            ("chosen", f"{strength}{which}, by {spec.methods.folds}-fold cross-validation inside the given images")
        )
        each = self.support_size / len(self.class_names)
        rows.append(
            ("learned from", f"{self.support_size} images of {len(self.class_names)} classes, {each:.3g} of each")
        )
        tested = HELD_OUT["images"] if self.held_out else "nothing: all images are learned from"
        rows.append(("held out", tested))
        rows += unverified_rows(self.verified, spec.data.dataset)
        computed, total = self.computed
        rows.append(
            ("features", f"{self.feature_count} of each image; {computed} computed, {total - computed} from the cache")
        )
        rows.append(("time", f"{self.seconds:.1f} s"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri, self.view, use="IMAGES...")
        tables = [text_table(header, lines) for header, lines in self.tables()]
        return "\n\n".join([block(self.title, rows), *tables])

    @property
    def title(self) -> str:
        """What was run, in a line."""
        spec = self.spec
        return (
            f"{self.choice.method} on {spec.network.model}: {spec.data.dataset}, "
            f"protocol {spec.evaluation.protocol}, seed {spec.seed}"
        )

    def markdown(self) -> str:
        """The tables as Markdown, for a page; the run has its settings."""
        lines = [f"# {self.title}", "", f"{self.headline}, 95 % interval, n = {self.test.n}"]
        for header, rows in self.tables():
            lines += ["", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
            lines += [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join(lines) + "\n"

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Header and rows: a row for every method, what was chosen last; then differences to `activation`, if tried."""
        pairs, arms = self.differences(), self.spec.methods.arms
        header = ["method", "strength", "inside %", f"{'test' if self.held_out else 'cross-validated'} %"]
        header += ["parameters moved", "bytes stored"]
        header += [f"less {self.baseline}, points", "p (Holm)"] if pairs else []
        rows, compared = [], _compared(pairs)
        for name in arms:
            inside = 100 * np.mean([draw.choices[name].accuracy for draw in self.draws])
            strengths = list(dict.fromkeys(str(draw.choices[name].strength) for draw in self.draws))
            cost = [f"{number}" for number in self.footprints().get(name, ("", ""))]
            row = [name, " ".join(strengths), f"{inside:.2f}", _percent(self.estimate(name), sign="")]
            rows.append([*row, *cost, *compared.get(name, ["", ""][: len(header) - 6])])
        if len(arms) > 1:
            names = [draw.best.method for draw in self.draws]
            counts = ", ".join(f"{name} {names.count(name)}" for name in arms if name in names)
            inside = 100 * np.mean([draw.best.accuracy for draw in self.draws])
            row = ["chosen inside", counts if len(names) > 1 else names[0], f"{inside:.2f}"]
            rows.append([*row, _percent(self.test, sign=""), *[""] * (len(header) - 4)])
        tables = [(header, rows)]
        if pairs and "activation" in arms and len(arms) > 2:
            others = _compared(self.differences("activation"))
            tables.append(
                (["method", "less activation, points", "p (Holm)"], [[name, *others[name]] for name in others])
            )
        return tables

    def estimate(self, method: str = "") -> Estimate:
        """Accuracy of a method, or of what was chosen; no interval goes beyond 0 or 1."""
        shares = [draw.accuracy(method) for draw in self.draws]
        if len(shares) > 1:
            return mean_interval(shares).within(0.0, 1.0)
        return proportion_interval(shares[0], len(self.draws[0].labels))

    def csv(self) -> str:
        """One line per draw and method: strength, accuracy inside the support and outside, whether it was chosen."""
        lines = ["draw,method,strength,inside,outside,chosen,parameters_moved,bytes_stored"]
        for number, draw in enumerate(self.draws):
            for name, choice in draw.choices.items():
                scores = f"{choice.accuracy:.6f},{draw.accuracy(name):.6f},{int(name == draw.best.method)}"
                moved, stored = draw.footprints.get(name, ("", ""))
                lines.append(f"{number},{name},{choice.strength},{scores},{moved},{stored}")
        return "\n".join(lines) + "\n"


def _percent(estimate: Estimate, sign: str = " %") -> str:
    """`81.60 % ± 0.70`, or the ends where they are not equally far from the mean.

    >>> _percent(Estimate(0.5, 0.4, 0.6, 9)), _percent(Estimate(0.95, 0.85, 1.0, 9, cut=True))
    ('50.00 % ± 10.00', '95.00 % (85.00 to 100.00)')
    """
    mean, low, high = 100 * estimate.mean, 100 * estimate.low, 100 * estimate.high
    if abs(high + low - 2 * mean) < 0.005:
        return f"{mean:.2f}{sign} ± {(high - low) / 2:.2f}"
    return f"{mean:.2f}{sign} ({low:.2f} to {high:.2f})"


def _compared(pairs: dict[str, PairedDifference]) -> dict[str, list[str]]:
    """Difference with its interval and its p with Holm's correction over all of them, by method."""
    corrected = holm([pair.p_t for pair in pairs.values()])
    shown: dict[str, list[str]] = {}
    for (name, pair), p in zip(pairs.items(), corrected, strict=True):
        estimate = pair.estimate
        difference = f"{100 * estimate.mean:+.2f} ± {100 * estimate.half_width:.2f}"
        if pair.constant:  # no interval
            difference = "identical" if pair.identical else f"{100 * estimate.mean:+.2f} in every draw"
        shown[name] = [difference, "" if np.isnan(p) else f"{p:.3g}"]
    return shown
