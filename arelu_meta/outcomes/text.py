"""Parts that the reports of all kinds of runs share."""

from collections.abc import Sequence

HELD_OUT = {
    "images": "images: the same classes occur in training, these images do not",
    "classes": "classes: none of the test classes occurs in training",
    "groups": "groups: no patient or writer of the test occurs in training",
}
UNVERIFIED = ("data", "not verified: the files are not the publisher's, byte for byte")


def where_to_look(run_id: str, experiment_id: str, tracking_uri: str) -> list[tuple[str, str]]:
    """Name the MLflow run and the line that opens the UI on it."""
    page = f"/#/experiments/{experiment_id}/runs/{run_id}"
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
