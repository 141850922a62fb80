"""Parts that the reports of all kinds of runs share."""

from collections.abc import Sequence
from pathlib import PurePath

from arelu_meta.kinds.sections import DataSection
from arelu_meta.kinds.supervised_sections import MeasureSection, SelectionSection
from arelu_meta.store.connection import without_password

HELD_OUT = {
    "images": "images: the same classes occur in training, these images do not",
    "classes": "classes: none of the test classes occurs in training",
    "groups": "groups: no patient or writer of the test occurs in training",
}
UNVERIFIED = ("data", "not verified: the files are not the publisher's, byte for byte")


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


def selected(epoch: int, evaluation: MeasureSection, *, epochs: int) -> tuple[str, str]:
    """Say after which epoch the test was, and that it was chosen or not."""
    if isinstance(evaluation, SelectionSection) and evaluation.select == "last":
        return ("selected", f"nothing: tested after epoch {epoch}; the validation images were trained on too")
    return ("selected", f"epoch {epoch} of {epochs}")


def part_of_set(data: DataSection) -> list[tuple[str, str]]:
    """Say so when the run saw a part of the set alone."""
    limits = []
    if data.limit_train is not None:
        limits.append(f"at most {data.limit_train} images to train on")
    if data.limit_test is not None:
        limits.append(f"at most {data.limit_test} each to validate and to test")
    return [("part of the set", f"{', '.join(limits)}, drawn class by class")] if limits else []


def where_to_look(run_id: str, experiment_id: str, tracking_uri: str) -> list[tuple[str, str]]:
    """Name the MLflow run and the line that opens the UI on it."""
    page = f"/#/experiments/{experiment_id}/runs/{run_id}"
    tracking_uri = without_password(tracking_uri)
    run = ("MLflow run", f"{run_id} in {tracking_uri}")
    if tracking_uri.startswith("http"):
        return [run, ("look at it", tracking_uri.rstrip("/") + page)]
    return [
        run,
        ("look at it", f"mlflow ui --backend-store-uri {tracking_uri}"),
        ("", f"then http://127.0.0.1:5000{page}"),
    ]


def block(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Write a title and labelled lines below it."""
    width = max(len(label) for label, _ in rows)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in rows)])
