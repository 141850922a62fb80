"""The command `python -m arelu_meta.predict`."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta.data.inputs import Inputs
from arelu_meta.pictures.answer_sheet import WRONG
from arelu_meta.predict import main
from arelu_meta.store.marking import SegmentationModel
from arelu_meta.store.predicting import LoadedModel


class Served:
    """Answers by the mean of the image: dark or light."""

    def __init__(self) -> None:
        self.class_names, self.inputs = ("dark", "light", "odd"), Inputs(1, 8)

    @staticmethod
    def network(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([4 * (1 - mean), 4 * mean, torch.zeros_like(mean)], 1)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fifty images in folders of their classes, two of them in the wrong one."""
    monkeypatch.setattr("arelu_meta.store.predicting.load_model", lambda source: LoadedModel(source, Served()))
    for number in range(50):
        name = "dark" if number < 25 else "light"
        grey = 20 if (number < 25) != (number in (0, 30)) else 230
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 9), grey).save(tmp_path / "photos" / name / f"{number:02}.png")
    (tmp_path / "it").mkdir()  # the model
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


def test_the_sheet_opens_formats_of_ours_alone(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """EPS under the name of a PNG would start Ghostscript; a file may change after it was answered."""
    answer = LoadedModel.predict_files

    def answer_then_change(self: LoadedModel, files: list[Path], **options: Any) -> object:
        found = answer(self, files, **options)
        Image.new("RGB", (6, 4)).save(photos / "dark" / "00.png", format="EPS")
        return found

    monkeypatch.setattr(LoadedModel, "predict_files", answer_then_change)
    assert main(["it", "photos", "--sheet", "a.png"]) == 2
    assert "dark/00.png is not a readable image" in capsys.readouterr().err


@pytest.mark.usefixtures("photos")
def test_table_files_and_sheet(capsys):
    words = ["it", "photos", "--csv", "a.csv", "--sheet", "a.png"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["file", "class", "%", "runner-up", "%"]
    assert out[1].split()[:2] == ["photos/dark/00.png", "light"]
    assert "... and 10 more; --csv FILE writes all" in out
    assert any(line.startswith("48 of 50 are in a folder of that name: 96.00 %, 95 % interval 86.") for line in out)
    assert out[-2:] == ["wrote a.csv", "wrote a.png"]
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert len(rows) == 50
    assert set(rows[0]) == {"file", "class", "probability", "runner_up", "runner_up_probability"}
    assert main(["it", "photos", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    records = document["answers"]
    assert document["metrics"]["accuracy"]["n"] == 50
    assert document["metrics"]["accuracy"]["mean"] == pytest.approx(0.96)
    mean = 20 / 255
    shares = torch.tensor([4 * (1 - mean), 4 * mean, 0.0]).softmax(0)
    assert records[1]["probabilities"] == pytest.approx(
        dict(zip(("dark", "light", "odd"), shares.tolist(), strict=True))
    )
    assert records[1]["probability"] == pytest.approx(shares.max().item())
    with Image.open("a.png") as sheet:
        assert sheet.width > 1000
        assert (np.asarray(sheet) == WRONG).all(2).any()  # two are in the wrong folder


def test_a_broken_image(photos, capsys):
    (photos / "dark" / "broken.png").write_bytes(b"no image")
    assert main(["it", "photos", "--csv", "a.csv"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "broken.png is not a readable image" in captured.err
    assert captured.err.endswith("or leave such files out by --skip-broken\n")
    assert captured.err.count("\n") == 1
    assert not Path("a.csv").exists()
    assert main(["it", "photos", "--csv", "a.csv", "--skip-broken"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("skipped photos/dark/broken.png: ")
    assert "1 of 51 files were skipped" in captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["it"], "the following arguments are required: IMAGES"),
        (["it", "nothing.png"], "no file or folder 'nothing.png'"),
        (["it", "photos", "--csv", "no/such/a.csv"], "cannot write no/such/a.csv"),
        (["it", "photos", "--csv", "/dev/full"], "cannot write /dev/full: No space left on device"),
        (["it", "photos", "--sheet", "/dev/full"], "cannot write /dev/full: "),
    ],
)
@pytest.mark.usefixtures("photos")
def test_wrong_input_is_one_line(capsys, words, message):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_images_that_are_not_there_are_said_before_torch_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr("arelu_meta.predict.progress.working", lambda *_, **__: pytest.fail("was begun"))
    assert main(["it", "nothing/"]) == 2
    assert capsys.readouterr().err == "error: no file or folder 'nothing/'; check the path\n"


def marking(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3), keepdim=True).expand(-1, -1, 8, 8) - 0.5


@pytest.mark.usefixtures("photos")
def test_a_segmentation_writes_masks(monkeypatch, capsys):
    served = SimpleNamespace(network=marking, inputs=Inputs(1, 8), class_names=("tumour",))
    model = SegmentationModel("it", served, note="prepare them")
    monkeypatch.setattr("arelu_meta.store.predicting.load_model", lambda _: model)
    assert main(["it", "photos", "--output", "masks", "--csv", "a.csv"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "note: prepare them\n"
    out = captured.out.splitlines()
    assert [line.split() for line in out[:2]] == [["file", "foreground", "%"], ["photos/dark/00.png", "100.00"]]
    assert out[-4] == "... and 10 more; --csv FILE writes all"
    assert out[-3].startswith("50 images in ")
    assert out[-2:] == ["wrote masks and overlays into masks", "wrote a.csv"]
    assert main(["it", "photos", "--output", "masks", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["answers"][0] == {
        "file": "photos/dark/00.png",
        "foreground": 1.0,
        "mask": "masks/dark/00_mask.png",
        "overlay": "masks/dark/00_overlay.png",
    }
    assert len(list(Path("masks").rglob("*.png"))) == 100
    assert main(["it", "photos"]) == 0
    assert capsys.readouterr().out.endswith("--output DIR writes the masks\n")
    for words, message in (
        (["--sheet", "a.png"], "it marks pixels, it names no classes; leave --sheet out and give --output"),
        (["--output", "photos"], "--output photos is where the images are"),
        (["--output", "a.csv"], "cannot write to a.csv"),
    ):
        assert main(["it", "photos", *words]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("photos")
def test_images_that_see_each_other_are_said_to(monkeypatch, capsys):
    model = LoadedModel("it", Served(), together=True)
    monkeypatch.setattr("arelu_meta.kinds.few_shot.supported.load_with_support", lambda *_: model)
    assert main(["it", "photos", "--support", "photos"]) == 0
    assert "(transductive): answers depend on what is asked with them" in capsys.readouterr().out
    assert main(["it", "photos", "--output", "masks"]) == 2
    assert "it classifies, it marks no pixels; leave --output out, or write a --sheet" in capsys.readouterr().err


def test_a_model_that_is_not_there(tmp_path, monkeypatch, capsys):
    """Told before anything is loaded to look for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("arelu_meta.store.predicting.load_model", lambda _source: pytest.fail("was begun"))
    Image.new("L", (8, 8)).save("a.png")
    assert main(["no_such_model", "a.png"]) == 2
    assert "no folder, MLflow run or model URI: 'no_such_model'" in capsys.readouterr().err


def test_unknown_images(photos, monkeypatch, capsys):
    """What is usual is made up here: of the first two images a twentieth at most of the support is no nearer."""

    def with_typicality(model, rate):
        def answer(pixels):
            usual = torch.full((len(pixels), 1), 0.5)
            usual[:2] = torch.tensor([[0.05], [0.02]])
            return torch.cat([model.served.network(pixels).softmax(1), usual], 1)

        assert rate == 0.05
        return answer

    monkeypatch.setattr(LoadedModel, "_with_typicality", with_typicality)
    words = ["it", str(photos / "dark"), "--unknown", "0.05", "--csv", "a.csv", "--sheet", "a.png"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 of 25 are unknown: less usual than 95 % of the support" in out
    assert out.splitlines()[1].split()[1:3] == ["unknown", "light"]
    assert main([*words, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["answers"]
    assert (records[0]["class"], records[0]["probability"], records[0]["runner_up"]) == ("unknown", None, "light")
    assert [record["typicality"] for record in records[:3]] == pytest.approx([0.05, 0.02, 0.5])
    row = next(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert (row["class"], row["probability"]) == ("unknown", "")


@pytest.mark.usefixtures("photos")
def test_unknown_is_for_models_of_adapt(capsys):
    assert main(["it", "photos", "--unknown", "0.05"]) == 2
    assert "it is no model of adapt, which --unknown is for; leave it out" in capsys.readouterr().err
