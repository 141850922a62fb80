"""Classes added to a stored model, and what is unknown to it: from runs in a store, as a user does."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from PIL import Image

from arelu_meta.adapt import main
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.adapt import extending
from arelu_meta.kinds.adapt.extending import extend_model
from arelu_meta.kinds.adapt.spec import AdaptSpec
from arelu_meta.store.models import open_model
from arelu_meta.store.predicting import LoadedModel, load_model
from arelu_meta.store.support import read_support
from tests.tiny_networks import TINY
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
LEVELS = {"dark": 10, "grey": 90, "light": 170, "white": 235}


def photos(folder: Path, names: tuple[str, ...], count: int = 8, seed: int = 0) -> Path:
    """Noise around a grey level, which is the class."""
    random = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = random.integers(LEVELS[name], LEVELS[name] + 20, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def adapted(folder: Path, method: str) -> str:
    spec = AdaptSpec(
        task="tiny",
        data={"dataset": str(folder)},
        network={"model": TINY, "weights": "none"},
        input={"image_size": 16, "mean": (0.5,), "std": (0.25,)},
        methods={"method": [method], "folds": 2, "epochs": 1},
    )
    return run(spec).run_id


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("method", ["prototypes", pytest.param("linear", marks=pytest.mark.slow)])
def test_a_class_is_added_and_the_others_stay(store_uri, tmp_path, capsys, method):
    """Rows bit-equal in the store, logits of the old classes equal, the new class answered; then another is added."""
    run_id = adapted(photos(tmp_path / "photos", ("dark", "grey")), method)
    more = photos(tmp_path / "more", ("light",))
    assert main([run_id, "--add", str(more)]) == 0
    report = capsys.readouterr().out
    assert "light (8 images)" in report
    new = MlflowClient(store_uri).get_run(re.findall("predict ([0-9a-f]{32})", report)[0])
    assert new.data.tags["extends"] == run_id
    before, after = open_model(run_id), open_model(new.info.run_id)
    assert after.class_names == ("dark", "grey", "light")
    old, now = before.state_dict(), after.state_dict()
    assert old.keys() == now.keys()
    for name, value in old.items():
        assert torch.equal(now[name][tuple(slice(size) for size in value.shape)], value)
    x = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(after.network()(x)[:, :2], before.network()(x))
    again = extend_model(new.info.run_id, photos(tmp_path / "last", ("white",)))
    assert again.class_names == ("dark", "grey", "light", "white")
    assert len(read_support(open_model(again.run_id)).features) == 32
    model = load_model(again.run_id)
    assert isinstance(model, LoadedModel)
    tests = photos(tmp_path / "tests", tuple(LEVELS), seed=1)
    answers = model.predict_files(sorted(tests.rglob("*.png")))
    right = [truth == answer for truth, answer in zip(answers.known_classes(), answers.table()["class"], strict=True)]
    assert np.mean(right) > 0.8


@pytest.mark.usefixtures("store_uri")
def test_what_is_unlike_the_support_is_unknown(tmp_path):
    """Images of known classes are rejected about as often as asked, white noise always; 24 images tell 0.05."""
    run_id = adapted(photos(tmp_path / "photos", ("dark", "light"), count=12), "knn")
    random = np.random.default_rng(1)
    noise = random.integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
    known = np.stack([np.asarray(Image.open(file)) for file in sorted((tmp_path / "photos").rglob("*.png"))])
    model = load_model(run_id)
    assert isinstance(model, LoadedModel)
    table = model.predict(noise, unknown=0.05)
    assert (table["class"] == "unknown").all()
    assert table["probability"].isna().all()
    assert set(table["runner_up"]) <= {"dark", "light"}
    assert (table["typicality"] == 1 / 25).all()
    plain = model.predict(known)
    told = model.predict(known, unknown=0.05)
    kept = told["class"] != "unknown"
    assert kept.mean() > 0.8
    assert (told["class"][kept] == plain["class"][kept]).all()
    assert "typicality" not in plain
    with pytest.raises(InputError, match=r"`unknown` 0.01 needs 99 labelled images at least"):
        model.predict(noise, unknown=0.01)


@pytest.mark.usefixtures("store_uri")
def test_wrong_additions(tmp_path, monkeypatch):
    run_id = adapted(photos(tmp_path / "photos", ("dark", "grey")), "prototypes")
    photos(tmp_path / "twice", ("grey", "white"))
    (tmp_path / "empty" / "black").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    for folder, message in (
        ("twice", "has a class 'grey' already"),
        ("empty", "black holds no images"),
        ("flat", "holds no class folders"),
        ("nowhere", "no folder"),
    ):
        with pytest.raises(InputError, match=message):
            extend_model(run_id, tmp_path / folder)
    support = replace(read_support(open_model(run_id)), method="mine")
    with monkeypatch.context() as patch:
        patch.setattr(extending, "read_support", lambda _stored: support)
        with pytest.raises(InputError, match=r"is damaged \(KeyError: 'mine'"):
            extend_model(run_id, photos(tmp_path / "more", ("light",)))
    moved = adapted(photos(tmp_path / "photos", ("dark", "grey")), "norm")
    with pytest.raises(InputError, match="models of adapt by method prototypes, knn or linear"):
        extend_model(moved, photos(tmp_path / "more", ("light",)))
    model = load_model(moved)
    assert isinstance(model, LoadedModel)
    with pytest.raises(InputError, match="models of adapt by method prototypes, knn or linear"):
        model.predict(np.zeros((2, 16, 16, 3), dtype=np.uint8), unknown=0.05)
