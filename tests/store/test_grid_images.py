"""Pictures in the image grid of the MLflow UI: named as MLflow names them, and there once."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from mlflow import MlflowClient
from PIL import Image

from arelu_meta.errors import InputError
from arelu_meta.store.connection import open_store
from arelu_meta.store.grid_images import FOLDER, PREVIEW, attach_image, pictures_of
from arelu_meta.store.journal import Journal
from arelu_meta.store.sending import send_entry
from arelu_meta.store.tracking import open_run
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [MLFLOW_WARNINGS, pytest.mark.figures, pytest.mark.usefixtures("store")]
VARYING = re.compile(r"timestamp(.)\d+\1[0-9a-f-]{36}")


def drawn() -> Figure:
    figure = Figure(figsize=(8, 4), dpi=100)
    figure.subplots().plot([0, 1], [1, 0])
    return figure


def pictures(client: MlflowClient, run_id: str) -> list[str]:
    return [file.path for file in client.list_artifacts(run_id, FOLDER)]


def test_the_files_are_those_of_log_image(tmp_path: Path):
    """But for time and random name, and for the size of the small picture: 512 pixels of 800."""
    client, experiment_id = open_store("tests")
    theirs, ours = (client.create_run(experiment_id).info.run_id for _ in range(2))
    client.log_image(theirs, np.zeros((4, 8, 3), np.uint8), key="grad_cam/block1.2", step=7)
    attach_image(ours, drawn(), "grad_cam/block1.2", 7)
    expected, found = ([VARYING.sub("", path) for path in pictures(client, run)] for run in (theirs, ours))
    assert sorted(found) == sorted(expected)
    assert len(found) == 2
    tags = [client.get_run(run).data.tags["mlflow.loggedImages"] for run in (theirs, ours)]
    assert tags[0] == tags[1]
    sizes = {}
    for path in pictures(client, ours):
        with Image.open(client.download_artifacts(ours, path, str(tmp_path))) as image:
            sizes[Path(path).suffix] = image.size
    assert sizes == {".png": (800, 400), ".webp": (PREVIEW, PREVIEW // 2)}


def test_what_is_drawn_again_replaces_what_is_there():
    client, experiment_id = open_store("tests")
    run_id = client.create_run(experiment_id).info.run_id
    for key, step in (("a", 0), ("a", 0), ("a", 1), ("b", 0)):
        attach_image(run_id, drawn(), key, step)
    assert len(pictures(client, run_id)) == 2 * 3
    assert pictures_of(client, run_id) == {"a": 1, "b": 0}
    with pytest.raises(InputError, match="cannot add a to run 'nobody'"):
        attach_image("nobody", drawn(), "a")


def test_an_offline_run_carries_its_pictures_and_sends_them_once(capsys: pytest.CaptureFixture[str]):
    """Sent whole, then again from its first entry on, as after a crash that lost what had been sent."""
    with open_run("tests", name="a run", tags={}, offline=True) as tracker:
        tracker.log_figure(drawn(), "figures/overlays.png", 3)
        tracker.log_figure(drawn(), "figures/training_curve.png")
    assert "is not yet in the MLflow store" in capsys.readouterr().err
    client, experiment_id = open_store("tests")
    (path,) = Path("runs").glob("*/journal/*")
    for _ in range(2):
        journal = Journal.open(path)
        journal.send_again()
        while journal.next is not None:
            send_entry(client, experiment_id, journal, again=True)
        (run,) = client.search_runs([experiment_id])
        names = [VARYING.sub("", file) for file in pictures(client, run.info.run_id)]
        assert sorted(names) == ["images/overlays+step+3++compressed.webp", "images/overlays+step+3+.png"]
        assert run.data.tags["mlflow.loggedImages"] == "True"
        figures = [file.path for file in client.list_artifacts(run.info.run_id, "figures")]
        assert figures == ["figures/overlays.png", "figures/training_curve.png"]
