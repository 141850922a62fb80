import pytest

from arelu_meta.kinds.seeds_result import SeedScore, SeedsResult
from tests.supervised_runs import classify_spec, segment_spec


def result(*scores: float, found: int = 0, **sections: object) -> SeedsResult:
    seeds = [SeedScore(seed, score, f"run{seed}", found=seed < found) for seed, score in enumerate(scores)]
    return SeedsResult(classify_spec(**sections), "accuracy", seeds, 1.0, "sqlite:///mlflow.db")


def test_interval_over_seeds_by_hand():
    """0.5, 0.6, 0.7: mean 0.6, deviation 0.1, t(0.975, 2) = 4.3027, so 4.3027 * 0.1 / sqrt(3) = 0.2484."""
    report = result(0.5, 0.6, 0.7).report()
    assert "test accuracy  60.00 % ± 24.84 (n = 3), 95 % interval over seeds" in report
    assert "found" not in report
    assert [line.split()[:3] for line in report.splitlines()[-3:]] == [
        ["0", "50.00", "run0"],
        ["1", "60.00", "run1"],
        ["2", "70.00", "run2"],
    ]


def test_one_seed_has_no_interval():
    assert result(0.5).test is None
    assert "50.00 % (n = 1, no interval)" in result(0.5).report()


def test_found_runs_and_parts_of_the_set_are_said():
    report = result(0.5, 0.6, 0.7, found=2, data={"limit_train": 90}).report()
    assert "2 of 3 runs were finished before" in report
    assert "at most 90 images to train on, drawn class by class" in report
    assert report.splitlines()[-1].endswith("run2")


def test_segmentation_and_the_papers_protocol():
    spec = segment_spec(evaluation={"protocol": "paper"})
    report = SeedsResult(spec, "Dice", [SeedScore(0, 0.5, "a", found=False)], 1.0, "x").report()
    assert report.startswith("arelu in unet: tests.tiny_images:discs (task tiny), adam lr 0.01, protocol paper, 1")
    assert "best test epoch, Dice" in report
    assert result(0.5, 0.7).test.mean == pytest.approx(0.6)
