"""Image files are found in folders, read and answered in order; broken ones are named."""

import os
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from arelu_meta.console import progress
from arelu_meta.data.inputs import Inputs
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import keep_freed_memory
from arelu_meta.store.image_files import AT_ONCE, answer_files, find_images, printable


def test_images_are_found_in_folders_and_by_name(tmp_path):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    for name in ("a/2.png", "a/deep/1.JPG", "a/notes.txt", "b.webp"):
        (tmp_path / name).touch()
    found = find_images([tmp_path / "a", str(tmp_path / "b.webp")])
    assert [file.name for file in found] == ["2.png", "1.JPG", "b.webp"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no images"):
        find_images([tmp_path / "empty"])
    with pytest.raises(InputError, match="no file or folder 'nothing'; check the path"):
        find_images(["nothing"])


def test_answers_are_in_the_order_of_the_files(tmp_path):
    """Files of several sizes and their grey values; the broken one between them is left out of both lists."""
    files = [tmp_path / f"{number}.png" for number in range(70)]
    for number, file in enumerate(files):
        Image.new("L", (4 + number % 3, 5), 3 * number).save(file)
    files[10].write_bytes(b"none")
    with pytest.raises(InputError, match=r"10\.png is not a readable image .* by `skip_broken`"):
        answer_files(files, Inputs(1, 4), lambda x: x[:, 0, 0, 0])
    answered, values, broken = answer_files(files, Inputs(1, 4), lambda x: x[:, 0, 0, 0], skip_broken=True)
    left = [number for number in range(70) if number != 10]
    assert answered == [files[number] for number in left]
    assert [file for file, _ in broken] == [files[10]]
    torch.testing.assert_close(values, torch.tensor(left) * 3 / 255)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted as Linux counts them")
def test_memory_of_large_maps_is_kept_between_batches(tmp_path):
    """Maps of 48 MB have 11,719 pages of 4 kB. By default glibc maps them anew for each of the three batches.

    Kept memory is used again, but where something small has come to lie in it meanwhile.
    """
    import resource

    faults = []

    def answer(x: Tensor) -> Tensor:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.full((12_000_000,), 1.0)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        return x[:, 0, 0, 0]

    files = [tmp_path / f"{number}.png" for number in range(2 * AT_ONCE + 1)]
    for file in files:
        Image.new("L", (4, 4)).save(file)
    with keep_freed_memory() as possible:
        pass
    if not possible:
        pytest.skip("this C library does not let memory be kept")
    answer_files(files, Inputs(1, 4), answer)
    assert len(faults) == 3
    assert min(faults[1:]) < 1000


def test_files_of_the_system_are_left_out(tmp_path):
    for name in ("a.png", "._a.png", "__MACOSX/b.png", ".trash/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.name for file in find_images([tmp_path])] == ["a.png"]


def test_nothing_to_answer():
    with pytest.raises(InputError, match="there are no images to answer; give one at least"):
        answer_files([], Inputs(1, 4), lambda x: x)


def test_names_that_are_no_text():
    assert printable(Path(os.fsdecode(b"caf\xe9/a.png"))) == "caf\ufffd/a.png"


def test_progress_is_shown_of_more_files_than_are_answered_at_once(tmp_path: Path, capsys):
    """64 at once: 130 files take three steps, 64 one."""
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    for count, wanted in ((130, ["64 of 130", "128 of 130", "130 of 130"]), (64, [])):
        answer_files([tmp_path / "a.png"] * count, Inputs(1, 4), lambda x: x[:, 0, 0, 0], bar=progress.shown)
        lines = capsys.readouterr().err.splitlines()
        assert [line.split("  ")[1].removesuffix(" images") for line in lines] == wanted
