"""The benchmark on a folder of photographs, at a hundredth of its size."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from arelu_meta import bench
from arelu_meta.benchmarks.folder import SIDE, _seconds_of, bench_folder, write_photographs
from arelu_meta.errors import InputError


def test_photographs_are_files_of_ten_classes(tmp_path: Path):
    write_photographs(tmp_path / "some", 23)
    files = sorted((tmp_path / "some").rglob("*.jpg"))
    assert len(files) == 23
    assert len({file.parent for file in files}) == 10
    with Image.open(files[0]) as image:
        assert (image.format, image.size, image.mode) == ("JPEG", (SIDE, SIDE), "RGB")


def test_both_epochs_are_measured():
    """200 photographs are 28.7 MiB; the bound is a quarter of that."""
    first, second = bench_folder(count=200, repeats=1)
    assert first.title.startswith("first epoch over 200 JPEG files of 224x224")
    assert second.title.startswith("second epoch")
    for report in (first, second):
        ours, theirs = report.rows
        assert (ours.name, ours.ratio) == ("arelu_meta", 1.0)
        assert theirs.ratio == pytest.approx(theirs.seconds / ours.seconds)
        assert "bound 7 MiB" in ours.note


def test_less_work_is_refused():
    batch = (torch.zeros(2, 3, SIDE, SIDE), torch.zeros(2))
    assert _seconds_of([batch, batch], 4, 0.0) > 0
    with pytest.raises(InputError, match="do not do the same work: 4 images of 5"):
        _seconds_of([batch, batch], 5, 0.0)
    with pytest.raises(InputError, match=r"do not do the same work: a batch is torch\.uint8"):
        _seconds_of([(batch[0].byte(), batch[1])], 2, 0.0)


def test_wrong_counts_are_one_line(capsys: pytest.CaptureFixture[str]):
    assert bench.main(["folder", "--count", "9", "--no-track"]) == 2
    assert "--count is 9; the folder has 10 classes" in capsys.readouterr().err
    assert bench.main(["maml", "--count", "90"]) == 2
    assert "--count is for folder alone, not for maml" in capsys.readouterr().err
