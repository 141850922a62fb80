"""What an adaptation gives back: the classifier, what was chosen, and how well it does, method by method."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from arelu_meta.analysis.estimates import Estimate, PairedDifference, holm, mean_interval, paired_difference
from arelu_meta.console.tables import text_table
from arelu_meta.data import is_path
from arelu_meta.kinds.adapt.choosing import STRENGTH_NAMES, Choice
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.kinds.results import HELD_OUT, UNVERIFIED, Result, block, where_to_look
from arelu_meta.metrics import confusion_matrix
from arelu_meta.pictures.figures import confusion_figure
from arelu_meta.store.tracking import Tracker


@dataclass(frozen=True, eq=False)
class DrawOutcome:
    """Answers in one draw, (n,) class numbers each: to held-out images, or by cross-validation where there are none.

    `answers` are those of every method at its chosen strength, `selected` those of the method that was chosen; in
    cross-validation both are chosen anew in every fold. `choices` are those made on all images that are learned from.
    """

    labels: np.ndarray
    answers: dict[str, np.ndarray]
    selected: np.ndarray
    choices: dict[str, Choice]

    def accuracy(self, method: str = "") -> float:
        """Share of right answers of a method, or of the one that was chosen."""
        return float(((self.answers[method] if method else self.selected) == self.labels).mean())


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdaptResult(Result):
    """A classifier made of a pretrained network and a head, chosen inside the images that it was fitted to.

    `choice` is what the network of the result is made of: that of the first draw. `computed` tells of how many images
    features were computed, of how many in all; the others came from the cache.
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

    @property
    def final(self) -> str:
        """What the metrics of the result are named after: nothing cross-validated passes for a test."""
        return "test" if self.held_out else "cross_validation"

    @cached_property
    def test(self) -> Estimate:
        """Accuracy of what was chosen, with its 95 % interval: over draws, or over images where there is one draw."""
        if len(self.draws) > 1:
            return mean_interval([draw.accuracy() for draw in self.draws])
        return mean_interval((self.draws[0].selected == self.draws[0].labels).astype(float))

    @property
    def headline(self) -> str:
        """The accuracy, in words."""
        return f"{'test' if self.held_out else 'cross-validated'} accuracy {self.test.percent().partition(' (')[0]}"

    def differences(self) -> dict[str, PairedDifference]:
        """Accuracy of every method less that of the first, paired on draws; empty with one draw or one method."""
        import pandas as pd

        first, *others = self.spec.methods.arms
        series = {name: pd.Series([draw.accuracy(name) for draw in self.draws]) for name in (first, *others)}
        return {name: paired_difference(series[name], series[first]) for name in others if len(self.draws) > 1}

    def record(self, tracker: Tracker) -> None:
        """Store metrics, draw by draw, then over all; tables and the confusion matrix."""
        arms, last = self.spec.methods.arms, len(self.draws)
        for step, draw in enumerate(self.draws):
            values = {f"{self.final}/accuracy_{name}": draw.accuracy(name) for name in arms}
            values |= {f"validation/accuracy_{name}": draw.choices[name].accuracy for name in arms}
            tracker.log_metrics({**values, f"{self.final}/accuracy": draw.accuracy()}, step)
        mean: dict[str, float] = {
            f"{self.final}/accuracy_{name}": float(np.mean([draw.accuracy(name) for draw in self.draws]))
            for name in arms
        }
        test = self.test
        mean |= {f"{self.final}/accuracy": test.mean, f"{self.final}/n": test.n}
        mean |= {f"{self.final}/accuracy_ci95_low": test.low, f"{self.final}/accuracy_ci95_high": test.high}
        mean["validation/selected_accuracy"] = self.choice.accuracy
        tracker.log_metrics(mean, last)
        tracker.set_tags({"method": self.choice.method, "strength": str(self.choice.strength)})
        tracker.log_text(self._csv(), "draws.csv")
        labels, answers = torch.from_numpy(self.draws[0].labels), torch.from_numpy(self.draws[0].selected)
        counts = confusion_matrix(labels, answers, len(self.class_names)).numpy()
        title = f"{self.choice.method} on {self.spec.network.model}, {self.headline}"
        tracker.log_figure(confusion_figure(counts, self.class_names, title=title), "figures/confusion.png")

    def report(self) -> str:
        """Say what was chosen, how well it does, against what, and how to use it."""
        spec, choice, test = self.spec, self.choice, self.test
        over = f"95 % interval over {'draws' if len(self.draws) > 1 else 'images'}"
        how = over if self.held_out else f"{over}; all choices made anew in every fold"
        rows = [(self.headline.partition(" accuracy")[0] + " accuracy", f"{test.percent()}, {how}")]
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
        if not self.verified and not is_path(spec.data.dataset):
            rows.append(UNVERIFIED)
        computed, total = self.computed
        rows.append(
            ("features", f"{self.feature_count} of each image; {computed} computed, {total - computed} from the cache")
        )
        rows.append(("time", f"{self.seconds:.1f} s"))
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri)
        rows.append(("use it", f"python -m arelu_meta.predict {self.run_id} IMAGES..."))
        title = (
            f"{choice.method} on {spec.network.model}: {spec.data.dataset}, protocol {spec.evaluation.protocol}, "
            f"seed {spec.seed}"
        )
        return f"{block(title, rows)}\n\n{self.table()}"

    def table(self) -> str:
        """Give a line for every method: strength, accuracy inside the support and outside, difference to the first."""
        header = ["method", "strength", "inside %", f"{'test' if self.held_out else 'cross-validated'} %"]
        pairs = self.differences()
        if pairs:
            header += [f"less {self.spec.methods.arms[0]}, points", "p (Holm)"]
        corrected = dict(zip(pairs, holm([pair.p_t for pair in pairs.values()]), strict=True))
        rows = []
        for name in self.spec.methods.arms:
            outside = [draw.accuracy(name) for draw in self.draws]
            inside = 100 * np.mean([draw.choices[name].accuracy for draw in self.draws])
            shown = mean_interval(outside).percent().partition(" (")[0].replace(" %", "") if pairs else ""
            strengths = list(dict.fromkeys(str(draw.choices[name].strength) for draw in self.draws))
            row = [name, " ".join(strengths[:4]), f"{inside:.2f}", shown or f"{100 * np.mean(outside):.2f}"]
            if name in pairs:
                estimate = pairs[name].estimate
                row += [f"{100 * estimate.mean:+.2f} ± {100 * estimate.half_width:.2f}", f"{corrected[name]:.3g}"]
            rows.append(row + [""] * (len(header) - len(row)))
        return text_table(header, rows)

    def _csv(self) -> str:
        """One line per draw and method: strength, accuracy inside the support and outside, whether it was chosen."""
        lines = ["draw,method,strength,inside,outside,chosen"]
        for number, draw in enumerate(self.draws):
            best = max(draw.choices.values(), key=lambda choice: (choice.accuracy, -choice.loss))
            for name, choice in draw.choices.items():
                chosen = int(name == best.method)
                lines.append(
                    f"{number},{name},{choice.strength},{choice.accuracy:.6f},{draw.accuracy(name):.6f},{chosen}"
                )
        return "\n".join(lines) + "\n"
