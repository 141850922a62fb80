"""What every kind of run gives back, and the lines that their reports share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar

from matplotlib.figure import Figure
from torch import nn

from arelu_meta.analysis.estimates import Estimate
from arelu_meta.console.output import plain
from arelu_meta.data import is_path
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import without_password
from arelu_meta.kinds.sections import DataSection, Spec
from arelu_meta.kinds.supervised_spec import SupervisedSpec
from arelu_meta.reading import shown
from arelu_meta.store.run_folder import RunFolder

HELD_OUT = {
    "images": "images: the same classes occur in training, these images do not",
    "classes": "classes: none of the test classes occurs in training",
    "groups": "groups: no patient or writer of the test occurs in training",
    "functions": "functions: none of the test functions occurs in training",
}
_MODEL_TRAINING = "workflowType=machine_learning"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result:
    """A finished run: its spec, the trained network, and where it is stored.

    `verified` tells whether the data files are the publisher's, byte for byte.
    """

    spec: Spec
    network: nn.Module
    verified: bool
    run_id: str
    experiment_id: str
    tracking_uri: str

    def __repr__(self) -> str:
        """One line: the kind of run, what it is judged by, and its id."""
        return f"<{self.spec.kind} run {self.run_id}: {self.headline}>"

    @property
    def headline(self) -> str:
        """The figure that the run is judged by, in words."""
        raise NotImplementedError

    def report(self) -> str:
        """Say what was run, how well it does, against what, and where to look at it."""
        raise NotImplementedError

    def estimates(self) -> dict[str, Estimate]:
        """Give the scores of the result with n and their 95 % intervals, under the names of their metrics."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """Everything for a script, as plain values for JSON: scores, ids, the run folder, all settings.

        Returns:
            `headline` in words; `metrics` by name, each with `mean`, `low`, `high`, `n`; a number that does not exist
            is None.
        """
        return {
            "kind": self.spec.kind,
            "task": self.spec.task,
            "seed": self.spec.seed,
            "identity": self.spec.identity,
            "headline": self.headline,
            "metrics": {name: estimate_values(estimate) for name, estimate in self.estimates().items()},
            "verified": self.verified,
            **places(self.run_id, self.experiment_id, self.tracking_uri),
            "run_folder": str(RunFolder(self.spec).path),
            "settings": plain(self.spec.model_dump(mode="json")),
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SupervisedResult(Result):
    """A trained network, the epoch it was selected at, and the score over the epochs.

    `curves` holds (epoch, score) for `train`, where it is known, and for the images that chose the epoch. `details`
    are labelled lines for the report on what was trained; `stored` says whether `predict` finds the network.
    """

    spec: SupervisedSpec
    held_out: str
    selected_epoch: int
    curves: dict[str, list[tuple[int, float]]]
    seconds: float
    details: list[tuple[str, str]] = field(default_factory=list)
    stored: bool = True
    use: ClassVar[str] = "IMAGES..."  # what `predict` takes after the run

    @property
    def score(self) -> float:
        """The test score that the run is judged by."""
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """The first line of the scores, without what is said about it."""
        label, text = self.score_rows()[0]
        return f"{label} {text.partition(',')[0]}"

    @property
    def goal(self) -> str:
        """What was to be learned, as titles say it."""
        return trained_on(self.spec.task, self.spec.data.dataset)

    def final_metrics(self) -> dict[str, float]:
        """Give the metrics of the test by name, without the prefix of the protocol."""
        raise NotImplementedError

    def figures(self, test: ImageSet, *, title: str) -> dict[str, Figure]:
        """Draw the figures that this kind of run has, by path."""
        raise NotImplementedError

    def texts(self) -> dict[str, str]:
        """Give the tables that this kind of run stores, by path."""
        raise NotImplementedError

    def score_rows(self) -> list[tuple[str, str]]:
        """Give the lines of the report that say how well it does."""
        raise NotImplementedError

    def table(self) -> str:
        """Give the table below the report."""
        raise NotImplementedError

    def report(self) -> str:
        """Say what was run, how well it does, against what, and where to look at it."""
        spec = self.spec
        rows = [*self.score_rows(), ("held out", HELD_OUT[self.held_out])]
        rows += [*unverified_rows(self.verified, spec.data.dataset), *self.details, *unusual_rows(spec)]
        selected = f"epoch {self.selected_epoch} of {spec.training.epochs}"
        if not spec.evaluation.selects:
            selected = f"nothing: tested after epoch {self.selected_epoch}"
        if not spec.evaluation.validates:
            selected += "; no images are held back to validate, all of them were trained on"
        rows.append(("selected", selected))
        rows.append(("time", f"{self.seconds:.1f} s"))
        use = self.use if self.stored else ""
        rows += where_to_look(self.run_id, self.experiment_id, self.tracking_uri, use=use)
        title = (
            f"{spec.network.activation} in {spec.network.backbone}: {self.goal}, {spec.training.optimizer} "
            f"lr {spec.training.lr:g}, protocol {spec.evaluation.protocol}, seed {spec.seed}"
        )
        return f"{block(title, rows)}\n\n{self.table()}"


def estimate_values(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as JSON has it.

    >>> estimate_values(Estimate(0.5, float("nan"), float("nan"), 1))
    {'mean': 0.5, 'low': None, 'high': None, 'n': 1}
    """
    values: dict[str, float | None] = plain(estimate)
    del values["cut"]
    return values


def places(run_id: str, experiment_id: str, tracking_uri: str) -> dict[str, str]:
    """Where a run is in the store, for scripts."""
    return {"run_id": run_id, "experiment_id": experiment_id, "tracking_uri": without_password(tracking_uri)}


def trained_on(task: str, dataset: str) -> str:
    """Name the task, and the images where they are not those it is called after.

    >>> trained_on("digits_classify", "digits"), trained_on("digits", "birds/")
    ('digits_classify', 'birds/ (task digits)')
    """
    return task if task.startswith(dataset) else f"{dataset} (task {task})"


def name_of(task: str, dataset: str) -> str:
    """The same for the name of a run, where paths and brackets would be in the way.

    >>> name_of("digits_classify", "digits"), name_of("digits", "my/birds/")
    ('digits_classify', 'digits-birds')
    """
    return task if task.startswith(dataset) else f"{task}-{PurePath(dataset).stem}"


def unverified_rows(verified: bool, *datasets: str) -> list[tuple[str, str]]:
    """Say so when files are not the publisher's; files of the user's own have none.

    >>> unverified_rows(False, "mnist"), unverified_rows(False, "my_photos/")
    ([('data', "not verified: the files are not the publisher's, byte for byte")], [])
    """
    published = any(not is_path(dataset) for dataset in datasets)
    return [("data", "not verified: the files are not the publisher's, byte for byte")] * (published and not verified)


def unusual_rows(spec: Spec) -> list[tuple[str, str]]:
    """Say so when the run saw only a part of the set, another split of it, or started from other weights."""
    data: DataSection = getattr(spec, "data")  # noqa: B009  # declared by the kinds, in their own order
    limits, rows = [], []
    if data.limit_train is not None:
        limits.append(f"at most {data.limit_train} images to train on")
    if data.limit_test is not None:
        limits.append(f"at most {data.limit_test} each to validate and to test")
    if limits:
        rows.append(("part of the set", f"{', '.join(limits)}, drawn class by class"))
    if data.split_seed:
        rows.append(("split", f"drawn with split seed {data.split_seed}, not the usual 0"))
    init = spec.flat().get("init", "default")  # a pretrained network has none
    return [*rows, ("initial weights", init)] if init != "default" else rows


def where_to_look(
    run_id: str, experiment_id: str, tracking_uri: str, view: str = "", *, use: str = ""
) -> list[tuple[str, str]]:
    """Name the MLflow run and the line that opens the UI on it, or on a saved view of its experiment.

    Without the type of work, a first visit would open what the UI has for language models. `use` is what `predict`
    takes after the run, where a model was stored that answers new images.
    """
    use_it = [("use it", f"python -m arelu_meta.predict {run_id} {use}")] if use else []
    page = f"/#/experiments/{experiment_id}/runs/{run_id}?{_MODEL_TRAINING}"
    if view:
        page = f"/#/experiments/{experiment_id}/runs?{_MODEL_TRAINING}&compareRunsMode=CHART&viewStateShareKey={view}"
    tracking_uri = without_password(tracking_uri)
    run = ("MLflow run", f"{run_id} in {tracking_uri}")
    unlisted = [("", line)] if view and (line := _views_unlisted()) else []
    if tracking_uri.startswith("http"):
        return [run, ("look at it", tracking_uri.rstrip("/") + page), *unlisted, *use_it]
    return [
        run,
        ("look at it", f"mlflow ui --backend-store-uri {tracking_uri}"),
        ("", f"then http://127.0.0.1:5000{page}"),
        *unlisted,
        *use_it,
    ]


def _views_unlisted() -> str:
    """Say what the UI of an older MLflow does not have; empty where it has it."""
    from arelu_meta.store.saved_view import UNLISTED, lists_views  # and MLflow, which most of these lines do without

    return "" if lists_views() else UNLISTED


def block(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Write a title and labelled lines below it."""
    width = max(len(label) for label, _ in rows)
    return "\n".join([shown(title), *(f"  {label:<{width}}  {shown(text)}" for label, text in rows)])
