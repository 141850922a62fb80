import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.images import load_split
from arelu_meta.kinds.look import look_into
from arelu_meta.look import main
from arelu_meta.pictures.grad_cam import grad_cam
from tests.supervised_runs import artifacts, classify_spec, finetune_spec, segment_spec, transfer_spec
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
QUICK = TrainingExecution(keep_model=False, layer_statistics=False)


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The images of these runs are functions of the tests."""
    monkeypatch.setenv("ARELU_META_TRUST", "tests")


def trained(activation: str = "arelu"):
    return run(classify_spec(training={"epochs": 1}, network={"activation": activation}), QUICK)


@pytest.mark.figures
def test_pictures_of_two_runs_side_by_side(store_uri, tmp_path, capsys):
    """By run id and by folder; the network is that of the run, so its Grad-CAM is the one drawn."""
    relu, arelu = trained("relu"), trained()
    folder = next(path for path in (tmp_path / "runs").iterdir() if arelu.spec.identity[:12] in path.name)
    flags = ["--layer", "block1", "--maps-layer", "block1.2", "--images", "3", "--out", str(tmp_path / "out")]
    assert main([relu.run_id, str(folder), *flags]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"and among the artifacts of {relu.run_id}, {arelu.run_id}"
    for file in ("grad_cam.png", "feature_maps.png"):
        assert (tmp_path / "out" / file).stat().st_size > 5_000
        for one in (relu, arelu):
            assert f"figures/{file}" in artifacts(store_uri, one.run_id)
    for one in (relu, arelu):
        in_grid = [file for file in artifacts(store_uri, one.run_id) if file.startswith("images/")]
        assert {file.partition("+timestamp")[0] for file in in_grid} == {
            "images/grad_cam~block1+step+0",
            *(f"images/{name}+step+1" for name in ("activation_curves", "confusion")),
        }


@pytest.mark.usefixtures("store")
def test_grad_cam_is_that_of_the_runs_own_network_and_test_images(tmp_path, monkeypatch):
    """Two of 40 test images: the first and the twentieth after it."""
    result, drawn = trained(), {}
    monkeypatch.setattr("arelu_meta.kinds.look.grad_cam_figure", lambda _, maps, **__: drawn.update(maps) or Figure())
    look_into([result.run_id], layer="block1", images=2, out=tmp_path)
    test = load_split(result.spec.data, shape=result.spec.fit).test
    numbers = torch.tensor([0, 20])
    wanted = grad_cam(result.network, test.pixels(numbers), test.labels[numbers], layer="block1")
    assert wanted.max() > 0
    assert torch.allclose(drawn["arelu"], wanted, atol=1e-6)


STORED = {"classify": "block1", "transfer": "block1", "finetune": "first", "segment": "down.0"}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", STORED)
def test_any_run_whose_network_is_in_the_store(tmp_path, monkeypatch, kind):
    """Without the run's folder, as on another machine: the Grad-CAM is that of the network in the run's result."""
    make = {"classify": classify_spec, "transfer": transfer_spec, "finetune": finetune_spec, "segment": segment_spec}
    result, calls = run(make[kind](training={"epochs": 2})), []
    shutil.rmtree(tmp_path / "runs")

    def recording(network, x, target, **options):
        calls.append((x, target, grad_cam(network, x, target, **options)))
        return calls[-1][-1]

    monkeypatch.setattr("arelu_meta.kinds.look.grad_cam", recording)
    drawn = look_into([f"runs:/{result.run_id}/model"], layer=STORED[kind], images=2, out=tmp_path)
    ((x, target, found),) = calls
    assert drawn.run_ids == [result.run_id]
    assert found.max() > 0
    assert torch.allclose(found, grad_cam(result.network, x, target, layer=STORED[kind]), atol=1e-5)
    assert target.tolist() == ([0, 0] if kind == "segment" else target.tolist())


@pytest.mark.usefixtures("store")
@pytest.mark.filterwarnings("ignore:images differ in size")
def test_photographs_of_different_sizes_are_read_again_as_the_run_read_them(tmp_path):
    """Made squares of 16 when they were read, and cut to 8: `look` refuses images of another digest."""
    random = np.random.default_rng(0)
    for label in ("ant", "bee"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(20):
            pixels = random.integers(0, 256, (20 + number % 3, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    sections = {"data": {"dataset": str(tmp_path / "photos")}, "input": {"image_size": 8, "crop_pct": 0.5}}
    result = run(finetune_spec(training={"epochs": 1}, **sections))
    drawn = look_into([result.run_id], layer="first", images=2, out=tmp_path)
    assert drawn.run_ids == [result.run_id]


@pytest.mark.usefixtures("store")
def test_a_few_shot_run_says_that_it_cannot_be_drawn(tiny_spec, tmp_path):
    result = run(tiny_spec())
    with pytest.raises(InputError, match="holds no network of classify, finetune or segment; name a run of these"):
        look_into([result.run_id], layer="block1", out=tmp_path)


@pytest.mark.usefixtures("store")
def test_a_layer_that_is_not_there_suggests_near_ones(capsys):
    result = trained()
    assert main([result.run_id, "--layer", "blok1"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: unknown layer 'blok1'; near names: block1")
    assert captured.err.count("\n") == 1
    assert not Path("pictures").exists()


@pytest.mark.usefixtures("store")
def test_without_a_layer_those_that_can_be_drawn_are_named(capsys):
    """What mnist_conv has of more than one pixel: after 3x3, its third block pools 2x2 to 1x1."""
    result = trained()
    assert "predict" not in result.report()  # its network is not stored, and is drawn from the checkpoint
    assert main([result.run_id]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: which layer? --layer can be block1, block2, block3.0, ")
    assert captured.err.count("\n") == 1
    assert not Path("pictures").exists()


@pytest.mark.usefixtures("store")
def test_wrong_input_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"no run 'nobody' of arelu_meta in sqlite:.*check the id"):
        look_into(["nobody"], layer="block1", out=tmp_path)
    segmented = run(segment_spec(training={"epochs": 1}), QUICK)
    with pytest.raises(InputError, match="is of a segment run without a stored network; only classify runs can be"):
        look_into([segmented.run_id], layer="down.0", out=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no network of arelu_meta"):
        look_into([str(tmp_path / "empty")], layer="block1", out=tmp_path)
    assert main(["x", "--layer", "a", "--images", "0"]) == 2


@pytest.mark.usefixtures("store")
def test_a_later_run_of_the_same_settings_is_not_taken_for_the_one_named(tmp_path):
    first, second = trained(), trained()
    with pytest.raises(
        InputError,
        match=f"run {first.run_id} stored no network, and .* holds a later run of the same settings, {second.run_id}",
    ):
        look_into([first.run_id], layer="block1", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
