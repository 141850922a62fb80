"""What several seeds of one setting give back."""

from dataclasses import dataclass

from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.console.tables import text_table
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.result_text import block, part_of_set, trained_on
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.store.connection import without_password


@dataclass(frozen=True)
class SeedScore:
    """One seed's test score, its MLflow run, and whether that run had been finished before."""

    seed: int
    score: float
    run_id: str
    found: bool


@dataclass(frozen=True)
class SeedsResult:
    """The test scores of one setting by seed: accuracies, or Dice coefficients."""

    spec: ClassifySpec | SegmentSpec
    measure: str
    seeds: list[SeedScore]
    seconds: float
    tracking_uri: str

    @property
    def test(self) -> Estimate | None:
        """Mean with the 95 % interval over seeds; None for a single one."""
        scores = [each.score for each in self.seeds]
        return mean_interval(scores) if len(scores) > 1 else None

    def report(self) -> str:
        """Say what was run, the mean over seeds, and every seed's score and run."""
        spec, paper = self.spec, self.spec.evaluation.protocol == "paper"
        label = f"best test epoch, {self.measure}" if paper else f"test {self.measure}"
        shown = f"{100 * self.seeds[0].score:.2f} % (n = 1, no interval)"
        if self.test is not None:
            shown = f"{self.test.percent()}, 95 % interval over seeds"
        rows = [(label, shown), *part_of_set(spec.data)]
        found = sum(each.found for each in self.seeds)
        if found:
            rows.append(("found", f"{found} of {len(self.seeds)} runs were finished before and are not repeated"))
        rows += [("time", f"{self.seconds:.1f} s"), ("MLflow", without_password(self.tracking_uri))]
        goal = trained_on(spec.task, spec.data.dataset)
        title = (
            f"{spec.network.activation} in {spec.flat().get('backbone', 'unet')}: {goal}, "
            f"{spec.training.optimizer} lr {spec.training.lr:g}, protocol {spec.evaluation.protocol}, "
            f"{len(self.seeds)} seeds"
        )
        table = [
            (str(each.seed), f"{100 * each.score:.2f}", each.run_id, "found" if each.found else "")
            for each in self.seeds
        ]
        return f"{block(title, rows)}\n\n{text_table(('seed', f'{self.measure} %', 'MLflow run', ''), table)}"
