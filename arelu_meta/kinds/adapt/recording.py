"""What an adaptation leaves in the store: metrics, tables, a run for each draw and method, and a view of these."""

import torch

from arelu_meta.kinds.adapt.result import AdaptResult, DrawOutcome
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.metrics import confusion_matrix
from arelu_meta.pictures.figures import confusion_figure
from arelu_meta.store.saved_view import MODEL_TRAINING, SavedView, bar, scatter
from arelu_meta.store.tracker import Tracker

DRAWS_OF = "draws_of"
"""Tag of the runs below an adaptation: its journal, which is known before the store has the run."""


def record_adaptation(result: AdaptResult, tracker: Tracker) -> None:
    """Store metrics over all draws, tables and the confusion matrix; draws and methods also as runs below this one."""
    arms, final, last = result.spec.methods.arms, result.final, len(result.draws)
    for step, draw in enumerate(result.draws):
        values = {f"{final}/accuracy_{name}": draw.accuracy(name) for name in arms}
        values |= {f"validation/accuracy_{name}": draw.choices[name].accuracy for name in arms}
        tracker.log_metrics({**values, f"{final}/accuracy": draw.accuracy()}, step)
        if last * len(arms) > 1:
            for name in arms:
                _log_method(tracker, final, step, draw, name)
    mean: dict[str, float] = {f"{final}/accuracy_{name}": result.estimate(name).mean for name in arms}
    for name, (moved, stored) in result.footprints().items():
        mean |= {f"parameters_moved_{name}": moved, f"bytes_stored_{name}": stored}
    test = result.test
    mean |= {f"{final}/accuracy": test.mean, f"{final}/n": test.n}
    mean |= {f"{final}/accuracy_ci95_low": test.low, f"{final}/accuracy_ci95_high": test.high}
    mean["validation/selected_accuracy"] = result.choice.accuracy
    tracker.log_metrics(mean, last)
    tracker.set_tags({"method": result.choice.method, "strength": str(result.choice.strength)})
    tracker.log_text(result.csv(), "draws.csv")
    tracker.log_text(result.markdown(), "report.md")
    labels, answers = torch.from_numpy(result.draws[0].labels), torch.from_numpy(result.draws[0].selected)
    counts = confusion_matrix(labels, answers, len(result.class_names)).numpy()
    title = f"{result.choice.method} on {result.spec.network.model}, {result.headline}"
    tracker.log_figure(confusion_figure(counts, result.class_names, title=title), "figures/confusion.png", last)
    if result.view:
        tracker.set_experiment_tags({**MODEL_TRAINING, **_view(result, tracker).tags(result.view)})


def view_key(spec: AdaptSpec) -> str:
    """What links call the view of an adaptation; empty where a single run has nothing to be shown beside.

    One for each spec: an adaptation that is run again replaces the view of the earlier one.
    """
    return f"arelu-meta-adapt-1-{spec.identity[:12]}" if spec.data.draws * len(spec.methods.arms) > 1 else ""


def _log_method(tracker: Tracker, final: str, number: int, draw: DrawOutcome, method: str) -> None:
    """Store how one method did in one draw as a run, so that the UI, and `judge`, can group by method."""
    choice = draw.choices[method]
    values = {f"{final}/accuracy": draw.accuracy(method), "validation/accuracy": choice.accuracy}
    if method in draw.footprints:
        values["parameters_moved"], values["bytes_stored"] = map(float, draw.footprints[method])
    tags = {"draw": str(number), "method": method, "strength": str(choice.strength), DRAWS_OF: tracker.journal_id}
    tags["chosen"] = str(method == draw.best.method)
    tracker.log_child(f"draw {number}: {method}", metrics=values, tags=tags)


def _view(result: AdaptResult, tracker: Tracker) -> SavedView:
    """The runs below the adaptation, grouped by method."""
    metric, spec = f"{result.final}/accuracy", result.spec
    return SavedView(
        # Not by the method that was chosen, as it shows all. The UI's list cuts names after some thirty letters.
        name=f"adapt {spec.data.dataset} by method: {spec.network.model}, seed {spec.seed}",
        condition=f"tags.`{DRAWS_OF}` = '{tracker.journal_id}'",
        metric=metric,
        groups=[("tag", "method")],
        columns=["tags.method", "tags.draw", "tags.strength"],
        charts=[
            bar(metric, "method"),
            bar("validation/accuracy", "method"),
            scatter(metric, "parameters_moved", "METRIC"),
        ],
    )
