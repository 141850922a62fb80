"""The command `python -m arelu_meta.adapt`."""

from pathlib import Path

import pytest

from arelu_meta.adapt import EXAMPLE, main
from arelu_meta.kinds.command import read_flags
from tests.supervised_runs import no_model
from tests.tiny_images import DIGITS
from tests.tiny_networks import TINY
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
NETWORK = ["--model", TINY, "--weights", "none", "--device", "cpu"]


@pytest.mark.usefixtures("store", "no_model")
def test_the_first_word_is_the_images(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    assert main([DIGITS, *NETWORK, "--shots", "5", "--method", "linear", "knn", "--draws", "2"]) == 0
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert first.split(" on ")[0] in ("knn", "linear")
    assert first.endswith(f"{TINY}: {DIGITS}, protocol support_only, seed 0")
    for part in (
        "n = 2, 95 % interval over draws",
        "50 images of 10 classes, 5 of each",
        "python -m arelu_meta.predict",
    ):
        assert part in out
    assert "prototypes" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_folder/"], "no file or folder 'no_such_folder/'"),
        (
            ["digits", "--method", "svm"],
            "--method svm: must be 'prototypes', 'knn', 'linear', 'norm',",
        ),
        (["digits", "--draws", "3"], "--draws 3 draws images anew, and without --shots all are learned from"),
        (["digits", "--shots", "3"], "class '0' has 3 images to learn from, fewer than --folds 5; set --folds 3"),
        (["digits", "--data", "glyphs"], "images are named twice, 'digits' and 'glyphs'; leave one out"),
        (["digits", "glyphs"], "unknown flag 'glyphs'"),
        (["--shotss", "3"], "unknown flag '--shotss'; did you mean '--shots'?"),
        (["digits", "--shotss", "3"], "unknown flag '--shotss'; did you mean '--shots'?"),
    ],
)
def test_wrong_input_is_one_line(refused, words, message):
    assert message in refused(main, words)


@pytest.mark.parametrize(
    ("words", "images", "shots"),
    [
        (["--method", "knn"], "digits", 5),  # the example
        (["--task", "adapt"], "digits", None),
        (["--dataset=glyphs"], "glyphs", None),
        (["glyphs", "--shots", "7"], "glyphs", 7),
        (["--shots", "7", "glyphs"], "glyphs", 7),
        (["--shots", "7", "glyphs", "--method", "knn", "linear"], "glyphs", 7),
    ],
)
def test_the_images_may_stand_anywhere(words, images, shots):
    spec, _ = read_flags("adapt", words, example=EXAMPLE)
    assert (spec.data.dataset, spec.data.shots) == (images, shots)
