"""The command `python -m arelu_meta.predict`."""

import csv
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from arelu_meta.predict import main
from arelu_meta.store.predicting import LoadedModel


class Served:
    """Answers by the mean of the image: dark or light."""

    def __init__(self) -> None:
        from arelu_meta.data.inputs import Inputs

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
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.mark.usefixtures("photos")
def test_table_files_and_sheet(capsys):
    words = ["it", "photos", "--csv", "a.csv", "--json", "a.json", "--sheet", "a.png"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["file", "class", "%", "runner-up", "%"]
    assert out[1].split()[:2] == ["photos/dark/00.png", "light"]
    assert "... and 10 more; --csv FILE writes all" in out
    assert any(line.startswith("48 of 50 are in a folder of that name: 96.00 %, 95 % interval 86.") for line in out)
    assert out[-3:] == ["wrote a.csv", "wrote a.json", "wrote a.png"]
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert len(rows) == 50
    assert set(rows[0]) == {"file", "class", "probability", "runner_up", "runner_up_probability"}
    records = json.loads(Path("a.json").read_text())
    mean = 20 / 255
    shares = torch.tensor([4 * (1 - mean), 4 * mean, 0.0]).softmax(0)
    assert records[1]["probabilities"] == pytest.approx(
        dict(zip(("dark", "light", "odd"), shares.tolist(), strict=True))
    )
    assert records[1]["probability"] == pytest.approx(shares.max().item())
    with Image.open("a.png") as sheet:
        assert sheet.width > 1000


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
    ],
)
@pytest.mark.usefixtures("photos")
def test_wrong_input_is_one_line(capsys, words, message):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_model_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8)).save("a.png")
    assert main(["no_such_model", "a.png"]) == 2
    assert "no folder, MLflow run or model URI: 'no_such_model'" in capsys.readouterr().err
