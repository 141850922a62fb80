"""What a few-shot run gives back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arelu_meta.analysis.estimates import Estimate, mean_interval
from arelu_meta.kinds.few_shot.measures import ACCURACY, MSE
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.finetune.spec import NO_WEIGHTS, OWN
from arelu_meta.kinds.results import HELD_OUT, Result, block, trained_on, unusual_rows, unverified_rows, where_to_look
from arelu_meta.training.collapse import collapsed

EPISODES = {"train": 160, "validation": 100}  # that a collapse is told by: accuracies of fewer scatter by some points

PIXELS = {
    "standardise": "standardised by mean and deviation of the training images",
    "weights": "by mean and deviation of the weights; of the training images where these are unknown",
    "unit": "in [0, 1], not standardised",
    "none": "as stored, 0 to 255",
}
FEATURES = {"standardise": "standardised by mean and deviation of the training vectors"}  # else as stored
SHOWN_STEPS = (0, 1, 2, 3, 5, 10)  # of an error, whose digits take more room than those of an accuracy


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FewShotResult(Result):
    """A trained network and its accuracy on the fixed test episodes; of a regression, its mean squared error.

    `episodes` is (test_episodes, inner_steps + 1): the accuracy of every episode before adaptation and after every
    step, in the order of the fixed episodes, so that two runs can be compared pair by pair. `curves` holds the accuracy
    while training, by subset: (iteration, accuracy), of the training batches and, where it is measured, in validation.
    `vectors` tells whether vectors were answered, not images.
    """

    spec: FewShotSpec
    episodes: np.ndarray
    held_out: str
    transductive: bool
    note: str
    curves: Mapping[str, Sequence[tuple[int, float]]]
    selected_iteration: int
    chosen: str = ""
    best_batch_accuracy: float
    train_seconds: float
    test_seconds: float
    recording_seconds: float
    vectors: bool = False

    @property
    def test(self) -> Estimate:
        """Test accuracy (or error) after the last step, with the 95 % interval over episodes."""
        return mean_interval(self.episodes[:, -1])

    @property
    def headline(self) -> str:
        """Test accuracy, or error, with its interval."""
        return f"test {self.spec.measure.name} {self.spec.measure.interval(self.test)}"

    @property
    def by_step(self) -> list[Estimate]:
        """Test accuracy, or error, before adaptation and after each step."""
        return [mean_interval(self.episodes[:, step]) for step in range(self.episodes.shape[1])]

    def estimates(self) -> dict[str, Estimate]:
        """Give the score after the last step, and before adaptation and after each step, over the test episodes."""
        name = f"test/{self.spec.measure.name}"
        return {name: self.test} | {f"{name}_step_{step}": score for step, score in enumerate(self.by_step)}

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / self.spec.episode.ways

    @property
    def collapsed(self) -> bool:
        """Whether training or validation accuracy fell back towards chance after having left it clearly.

        Accuracies are averaged over outer steps with 160 episodes together, and validations with 100;
        `arelu_meta.training.collapse` has the rule. A network that was selected on validation may be one from before.
        """
        return bool(self._collapse())

    def report(self) -> str:
        """Say what was run, how well it adapts, against what, and where to look at it."""
        spec, measure = self.spec, self.spec.measure
        seen = "see each other through batch statistics (transductive)" if self.transductive else "judged one by one"
        pixels = ("pixels", PIXELS[spec.fit.normalise])
        rows = [
            (
                f"test {measure.name}",
                f"{measure.interval(self.test)}, 95 % interval over the episodes of this one network",
            ),
            *self._step_rows(),
            ("held out", HELD_OUT["functions" if measure is MSE else self.held_out]),
            ("queries", seen),
            ("features", FEATURES.get(spec.fit.normalise, "as stored")) if self.vectors else pixels,
            *unusual_rows(spec),
        ]
        if spec.training.adapt != "all":
            rows.insert(2, ("adapts", f"{spec.training.adapt} alone inside an episode; all is meta-learned"))
        if collapse := self._collapse():
            rows.insert(1, ("collapsed", collapse))
        if spec.network.is_pretrained:
            untrained = spec.network.weights == NO_WEIGHTS
            rows.append(("weights", "none: an untrained network" if untrained else spec.network.weights))
        if self.chosen:
            rows.append(("chosen", self.chosen))
        if self.note:
            rows.append(("episodes", f"computed one by one, as `vmap` {self.note}"))
        rows += unverified_rows(self.verified, spec.data.dataset)
        if spec.evaluation.protocol == "paper":
            note = "the published measure: the maximum over training batches; nothing is held back to validate"
            rows.insert(0, ("best train batch", f"{100 * self.best_batch_accuracy:.2f} %, {note}"))
        elif self.selected_iteration:
            chosen = f"iteration {self.selected_iteration} of {spec.training.iterations}"
            rows.append(("selected", f"{chosen}, on {spec.evaluation.validation_episodes} validation episodes"))
        recording = f" ({self.recording_seconds:.1f} s to record the step)" if self.recording_seconds else ""
        rows.append(("time", f"{self.train_seconds:.1f} s to train{recording}, {self.test_seconds:.1f} s to test"))
        use = "" if spec.measure is MSE or self.vectors else "IMAGES... --support FOLDER"
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri, use=use)
        goal = trained_on(spec.task, spec.data.dataset)
        activation = "its own activations" if spec.network.activation == OWN else spec.network.activation
        title = (
            f"{activation} in {spec.network.backbone}: {spec.problem} {spec.training.method} on {goal}, "
            f"protocol {spec.evaluation.protocol}, seed {spec.seed}"
        )
        return block(title, rows)

    def _step_rows(self) -> list[tuple[str, str]]:
        """The score by inner step: accuracies in a line beside chance, errors in lines of their own with intervals."""
        if self.spec.measure is ACCURACY:
            steps = "   ".join(f"{step}: {100 * estimate.mean:.1f}" for step, estimate in enumerate(self.by_step))
            return [("by inner step", f"{steps}   (%)"), ("chance", f"{100 * self.chance:.2f} %")]
        shown = {*SHOWN_STEPS, len(self.by_step) - 1}
        return [
            (f"after {step} steps" if step != 1 else "after 1 step", self.spec.measure.interval(estimate))
            for step, estimate in enumerate(self.by_step)
            if step in shown
        ]

    def _collapse(self) -> str:
        """Say in one line that training collapsed, where it was best and where it ended, and what helps; else empty."""
        spec = self.spec
        if spec.measure is not ACCURACY:
            return ""  # there is no chance to fall back to
        judged = (  # accuracies of, episodes of one, fewest that are averaged, ways
            ("validation", spec.evaluation.validation_episodes, 1, spec.episode.ways),
            ("train", spec.training.meta_batch, 5, spec.episode.train_ways or spec.episode.ways),
        )
        for subset, size, fewest, ways in judged:
            curve, window = self.curves.get(subset, ()), max(fewest, math.ceil(EPISODES[subset] / size))
            found = collapsed([accuracy for _, accuracy in curve], 1 / ways, window=window)
            if found:
                at, best, end = found
                remedy = "" if spec.training.episode_clip else "; bound `episode_clip`, or lower `outer_lr`"
                fell = f"{subset} accuracy fell back from {100 * best:.1f} % at iteration {curve[at][0]}"
                return f"{fell} to {100 * end:.1f} %{remedy}"
        return ""
