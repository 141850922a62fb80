"""Stored classifiers in use: files, folders and arrays give the answers of the network itself."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import arelu_meta
from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.kinds.segment.spec import SegmentSpec
from arelu_meta.store.marking import SegmentationModel
from arelu_meta.store.predicting import LoadedModel, Predictions, load_model
from tests.scoring_server import post_inputs, serving
from tests.supervised_runs import ADAPT, SEGMENT, classify_spec
from tests.tiny_images import DIGITS
from tests.tiny_model import tiny_model
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, own_store: Any) -> Any:
    """An adaptation and a classifier in one store, and folders with images that they have not seen."""
    folder = tmp_path_factory.mktemp("trained")
    with own_store(folder) as patch:
        patch.setenv("ARELU_META_CACHE", str(folder / "cache"))
        spec = AdaptSpec.model_validate({**ADAPT, "data": {"dataset": DIGITS, "shots": 10}})
        results = {"adapt": run(spec), "classify": run(classify_spec(training={"epochs": 1}))}
        images = unseen()
        for number, (image, label) in enumerate(zip(images.images, images.labels.tolist(), strict=True)):
            (folder / "new" / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(folder / "new" / str(label) / f"{number:02}.png")
        yield folder, results


def unseen() -> ImageSet:
    return data.load("digits").subset(torch.arange(1700, 1730))


@pytest.fixture(autouse=True)
def same_store(stored, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{stored[0] / 'mlflow.db'}")
    monkeypatch.setenv("ARELU_META_RUNS", str(stored[0] / "runs"))


@pytest.mark.parametrize("kind", ["adapt", "classify"])
def test_files_are_answered_as_the_network_of_the_run_does(stored, kind):
    folder, results = stored
    model = arelu_meta.load_model(results[kind].run_id)
    table = model.predict(folder / "new")
    images = unseen()
    by_name = {f"{number:02}.png": number for number in range(30)}
    numbers = [by_name[Path(file).name] for file in table["file"]]
    inputs = model.served.inputs
    pixels = inputs.normalise(images.images[numbers].expand(-1, inputs.channels, -1, -1).float() / 255)
    with torch.no_grad():
        shares = results[kind].network.eval()(pixels).softmax(1)
    best = shares.sort(1, descending=True)
    assert table["class"].tolist() == [str(label) for label in best.indices[:, 0].tolist()]
    np.testing.assert_allclose(table["probability"], best.values[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(table["runner_up_probability"], best.values[:, 1], rtol=1e-4, atol=1e-5)
    array = model.predict(images.images[numbers].permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(array["probability"], table["probability"], rtol=1e-4, atol=1e-5)
    assert list(array.columns) == ["class", "probability", "runner_up", "runner_up_probability"]


@pytest.mark.slow
def test_mlflow_serves_an_adaptation(stored, tmp_path):
    """Image files in base64, of a size of their own, and arrays; what is wrong is answered in one line."""
    folder, results = stored
    files = sorted((folder / "new").rglob("*.png"))[:5]
    arrays = [np.asarray(Image.open(file))[None].tolist() for file in files]
    expected = load_model(results["adapt"].run_id).predict(files)
    with serving(f"runs:/{results['adapt'].run_id}/model", tmp_path / "server.log") as address:
        for request in ([base64.b64encode(file.read_bytes()).decode() for file in files], arrays):
            status, answer = post_inputs(address, request)
            assert status == 200, answer
            rows = json.loads(answer)["predictions"]
            assert [row["class"] for row in rows] == expected["class"].tolist()
            np.testing.assert_allclose([row["probability"] for row in rows], expected["probability"], rtol=1e-4)
        status, answer = post_inputs(address, ["no image"])
        assert status == 400
        assert json.loads(answer)["message"].startswith("images 0 is text and no base64; give images")


def test_run_uri_and_folders_are_one_model(stored, tmp_path):
    folder, results = stored
    result = results["adapt"]
    copied = tmp_path / "model"
    from mlflow.artifacts import download_artifacts

    download_artifacts(artifact_uri=f"runs:/{result.run_id}/model", dst_path=str(copied))
    (run_folder,) = (folder / "runs").glob(f"*{result.spec.identity[:12]}")
    (inside,) = copied.rglob("MLmodel")
    file = next((folder / "new").rglob("*.png"))
    answers = [
        load_model(source).predict(file).to_dict("records")
        for source in (result.run_id, f"runs:/{result.run_id}/model", run_folder, inside.parent)
    ]
    assert all(answer == answers[0] for answer in answers)


def test_a_broken_file_is_named_and_nothing_answered_unless_it_is_skipped(stored, tmp_path):
    folder, results = stored
    model = load_model(results["adapt"].run_id)
    good = sorted((folder / "new").rglob("*.png"))[:3]
    (tmp_path / "broken.png").write_bytes(good[0].read_bytes()[:60])
    with pytest.raises(InputError, match=r"broken\.png is not a readable image .*; or leave such files out by `skip_"):
        model.predict([*good, tmp_path / "broken.png"])
    found = model.predict_files([good[0], tmp_path / "broken.png", *good[1:]], skip_broken=True)
    assert found.files == good
    assert [file for file, _ in found.broken] == [tmp_path / "broken.png"]
    with pytest.raises(InputError, match="none of 1 files is a readable image"):
        model.predict([tmp_path / "broken.png"], skip_broken=True)


def test_known_classes_are_folder_names():
    shares = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    found = Predictions([Path("cat/1.png"), Path("dog/2.png")], shares, ("cat", "dog"))
    assert found.known_classes() == ["cat", "dog"]
    assert found.table().to_dict("records")[0] == {
        "file": "cat/1.png",
        "class": "dog",
        "probability": pytest.approx(0.8),
        "runner_up": "cat",
        "runner_up_probability": pytest.approx(0.2),
    }
    assert Predictions([Path("cat/1.png"), Path("2.png")], shares, ("cat", "dog")).known_classes() == []


def test_models_of_other_kinds(monkeypatch, tmp_path):
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    tiny_model().save(tmp_path / "few_shot")
    with pytest.raises(InputError, match="is a few-shot model, which adapts to labelled images before it answers; giv"):
        load_model(tmp_path / "few_shot")
    segmented = run(SegmentSpec.model_validate({**SEGMENT, "training": {**SEGMENT["training"], "epochs": 1}}))
    model = load_model(segmented.run_id)
    assert isinstance(model, SegmentationModel)
    assert model.note == ""


def test_a_network_without_classes_is_refused(monkeypatch):
    served = SimpleNamespace(class_names=("all",), inputs=Inputs(1, 4), network=lambda x: x.flatten(1))
    monkeypatch.setattr("arelu_meta.store.predicting.open_model", lambda _: SimpleNamespace(folder=Path("none")))
    monkeypatch.setattr("arelu_meta.store.predicting.load_served", lambda _: served)
    with pytest.raises(InputError, match=r"it names 1 classes, it does not classify; name another run"):
        load_model("it")


def test_images_that_see_each_other_are_answered_at_once(tmp_path):
    """A hundred files, more than are read at once else: the network is called once, with all of them."""
    calls = []

    def network(x):
        calls.append(len(x))
        return torch.stack([x.mean((1, 2, 3)) - x.mean(), -x.mean((1, 2, 3))], 1)

    files = [tmp_path / f"{number:03}.png" for number in range(100)]
    for number, file in enumerate(files):
        Image.new("L", (4, 4), number).save(file)
    served = SimpleNamespace(class_names=("a", "b"), inputs=Inputs(1, 4), network=network)
    assert len(LoadedModel("it", served, together=True).predict(tmp_path)) == 100
    assert len(LoadedModel("it", served).predict(tmp_path)) == 100
    assert calls == [100, 64, 36]


def test_the_class_is_the_folder_that_was_named(tmp_path):
    """Not the one that a link points to."""
    for folder in ("pool", "cat", "dog"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pool" / "1.png").touch()
    for name in ("cat", "dog"):
        (tmp_path / name / "a.png").symlink_to(tmp_path / "pool" / "1.png")
    files = [tmp_path / "cat" / "a.png", tmp_path / "cat" / ".." / "dog" / "a.png"]
    assert Predictions(files, torch.tensor([[0.2, 0.8]] * 2), ("cat", "dog")).known_classes() == ["cat", "dog"]


def test_no_images_are_one_line():
    model = LoadedModel("it", SimpleNamespace(class_names=("a", "b"), inputs=Inputs(3, 4), network=None))
    for nothing in ([], np.zeros((0, 4, 4, 3), np.uint8)):
        with pytest.raises(InputError, match="there are no images to answer"):
            model.predict(nothing)
