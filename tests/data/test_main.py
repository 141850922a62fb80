import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta import data
from arelu_meta.data.__main__ import main
from arelu_meta.data.imageset import ImageSet

ROOT = Path(data.__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "arelu_meta.data", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)


def lines_of(text):
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines())


@pytest.fixture
def squares():
    return ImageSet(
        "squares", torch.zeros(6, 1, 8, 4, dtype=torch.uint8), torch.tensor([0, 0, 0, 0, 1, 2]), tuple("abc")
    )


def test_show_digits_prints_and_draws(tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    assert main(["show", "digits", "--out", str(sheet)]) == 0
    printed = capsys.readouterr().out
    told = lines_of(printed.rsplit("\n", 2)[0])
    assert told["images"].startswith("1,797 of 1x28x28")
    assert told["per class"] == "min 174, median 180.5, max 183"  # of scikit-learn's description of the set
    assert told["verified"] == "yes"
    assert str(sheet) in printed
    with Image.open(sheet) as drawn:
        assert np.asarray(drawn).std() > 10


def test_show_without_out_names_the_sheet_after_the_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", "phantom"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["phantom.png"]


def test_list_names_every_set(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == data.names()
    assert all(entry.summary in line for entry, line in zip(data.entries(), printed, strict=True))


def test_data_root_is_handed_on(tmp_path, monkeypatch, squares):
    seen = {}

    def load(name, *, root=None):
        seen.update(name=name, root=root)
        return squares

    monkeypatch.setattr(data, "load", load)
    assert main(["show", "some/folder", "--data-root", str(tmp_path), "--out", str(tmp_path / "s.png")]) == 0
    assert seen == {"name": "some/folder", "root": tmp_path}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "glyfs"], "unknown dataset 'glyfs'; did you mean 'glyphs'?"),
        (["show"], "NAME|PATH; python -m arelu_meta.data show --help describes them"),
        (["sow", "glyphs"], "invalid choice: 'sow'; did you mean 'show'?"),
        (["show", "birds"], "svhn; nor is a folder of that name here"),
        ([], "required: {list,show,cache}"),
        (["show", "digits", "--size", "3"], "unknown flag '--size'; "),
        (["show", "digits", "--imagesize=3"], "unknown flag '--imagesize'; did you mean '--image-size'"),
        (["show", "digits", "and", "more"], "unrecognized arguments: and more"),
        (["show", "digits", "--out", "missing/folder/sheet.png"], "cannot write the contact sheet"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_as_a_process():
    wrong = run("show", "digit")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: unknown dataset 'digit'; did you mean 'digits'?\n"
    right = run("list")
    assert (right.returncode, right.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["list"]])
def test_help_and_list_import_no_torch(arguments):
    code = (
        "import sys\n"
        "from arelu_meta.data.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'matplotlib', 'scipy', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "show" in done.stdout or "digits" in done.stdout


@pytest.mark.parametrize("sizes", [[30, 30], [30, 60]])
@pytest.mark.parametrize(
    ("resize", "colours"),
    [("scale", {"green"}), ("squash", {"red", "green", "blue"}), ("crop", {"green"}), ("", {"green"})],
)
@pytest.mark.filterwarnings("ignore:images differ in size")
def test_wide_photographs_are_shown_as_a_network_would_get_them(tmp_path, sizes, resize, colours):
    """Three squares side by side, red, green and blue: the one in the middle, or all of them squashed."""
    paint = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
    for label, side in enumerate(sizes):
        photo = Image.new("RGB", (3 * side, side))
        for number, colour in enumerate(paint.values()):
            photo.paste(colour, (number * side, 0, (number + 1) * side, side))
        (tmp_path / "photos" / str(label)).mkdir(parents=True)
        photo.save(tmp_path / "photos" / str(label) / "1.png")
    words = ["show", str(tmp_path / "photos"), "--image-size", "30", "--out", str(tmp_path / "sheet.png")]
    assert main([*words, *(["--resize", resize] if resize else [])]) == 0
    seen = np.asarray(Image.open(tmp_path / "sheet.png")).reshape(-1, 3)
    found = {name for name, colour in paint.items() if (np.abs(seen.astype(int) - colour).max(1) < 8).sum() > 100}
    assert found == colours


def test_a_large_folder_is_shown_from_its_file_which_can_be_removed(tmp_path, monkeypatch, capsys):
    """30 images of 3x128x128 are 1.5 MB, more than 1 MiB."""
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    for label in "ab":
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(15):
            Image.new("RGB", (128, 128), (number, 0, 9)).save(tmp_path / "photos" / label / f"{number}.png")
    arguments = ["show", str(tmp_path / "photos"), "--out", str(tmp_path / "sheet.png")]
    assert main(arguments) == 0
    assert "cache" not in capsys.readouterr().out
    assert main([*arguments, "--image-memory", "1"]) == 0
    captured = capsys.readouterr()
    (file,) = (tmp_path / "cache" / "images").glob("*.npy")
    assert f"30 of 3x128x128, 1.5 MB, in {file}, decoded" in captured.out
    assert "decode 1/1  30 of 30 images" in captured.err
    assert main(["cache"]) == 0
    listed = capsys.readouterr().out
    assert str(file) in listed
    assert "1.5 MB  in 1 files" in listed
    assert main(["cache", "--remove", "--unused-days", "2"]) == 0
    assert file.exists()
    assert main(["cache", "--remove"]) == 0
    assert "removed 1 files" in capsys.readouterr().out
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache", "--remove", "--unused-days", "-1"], "--unused-days is -1; give 0 or more"),
        (["cache", "--unused-days", "3"], "--unused-days says what is removed; add --remove"),
        (["show", "digits", "--image-memory", "-5"], "--image-memory is -5; give a number of MiB, or 0"),
    ],
)
def test_wrong_flags_are_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
