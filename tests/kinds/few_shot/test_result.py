import math
from collections.abc import Callable

import numpy as np
import pytest
from torch import nn

from arelu_meta.kinds.few_shot.result import FewShotResult

EPISODES = np.array([[0.2, 0.4, 0.6], [0.2, 0.4, 0.6], [0.2, 0.6, 0.8], [0.2, 0.6, 0.8]])


@pytest.fixture
def result(tiny_spec: Callable) -> Callable[..., FewShotResult]:
    def make(
        uri: str = "sqlite:///mlflow.db", *, note: str = "", curves: dict | None = None, **sections
    ) -> FewShotResult:
        return FewShotResult(
            spec=tiny_spec(**sections),
            network=nn.Identity(),
            episodes=EPISODES,
            held_out="images",
            note=note,
            curves=curves or {"train": [(1, 0.5), (2, 0.6)]},
            selected_iteration=1,
            best_batch_accuracy=0.75,
            verified=True,
            transductive=False,
            train_seconds=1.5,
            test_seconds=0.5,
            recording_seconds=0.0,
            run_id="abc",
            experiment_id="7",
            tracking_uri=uri,
        )

    return make


def test_estimates(result: Callable):
    """Last step 0.6, 0.6, 0.8, 0.8: mean 0.7, sd 0.1 sqrt(4/3), se 0.1 / sqrt(3), t(0.975, 3) = 3.182446."""
    made = result()
    assert made.test.mean == pytest.approx(0.7)
    assert made.test.half_width == pytest.approx(3.182446 * 0.1 / math.sqrt(3), rel=1e-6)
    assert [estimate.mean for estimate in made.by_step] == pytest.approx([0.2, 0.5, 0.7])
    assert made.chance == 0.2


def test_sound_report(result: Callable):
    text = result().report()
    for part in (
        "arelu in mnist_conv: 5-way 1-shot maml on digits, protocol sound, seed 0",
        "70.00 % ± 18.37 (n = 4)",
        "0: 20.0   1: 50.0   2: 70.0",
        "20.00 %",
        "the same classes occur in training",
        "pixels         standardised by mean and deviation of the training images\n",
        "iteration 1 of 2",
        "mlflow ui --backend-store-uri sqlite:///mlflow.db",
        "http://127.0.0.1:5000/#/experiments/7/runs/abc?workflowType=machine_learning",
    ):
        assert part in text
    assert "best train batch" not in text
    assert "one by one, as" not in text


def test_a_network_that_cannot_be_vectorised_says_why(result: Callable):
    assert (
        "episodes       computed one by one, as `vmap` fails: it branches\n"
        in result(note="fails: it branches").report()
    )


def test_a_collapsed_training_says_so(result: Callable):
    """Five ways, chance 20 %: 0.6 above it in validation, then 0.1."""
    fell = {"train": [(1, 0.5), (2, 0.5)], "validation": [(1, 0.8), (2, 0.3)]}
    made = result(curves=fell, evaluation={"validation_episodes": 100}, training={"episode_clip": None})
    assert made.collapsed
    line = "collapsed      validation accuracy fell back from 80.0 % at iteration 1 to 30.0 %; bound `episode_clip`, or"
    assert line in made.report()
    assert not result().collapsed
    assert "collapsed" not in result().report()
    falling = [(step, 0.8 if step < 6 else 0.3) for step in range(1, 11)]
    bounded = result(curves={"train": falling}, training={"episode_clip": 1.0, "meta_batch": 32})
    assert bounded.collapsed
    assert "train accuracy fell back from 80.0 % at iteration 5 to 30.0 %\n" in bounded.report()
    assert not result(curves={"train": falling}, training={"meta_batch": 1}).collapsed  # ten episodes tell nothing
    assert not result(curves=fell, evaluation={"validation_episodes": 2}).collapsed
    assert not result(curves={"train": []}).collapsed  # a method that needs no training


def test_training_has_the_chance_of_its_own_ways(result: Callable):
    """From 0.40 to 0.30: half of what is above 1/5 is lost, and of what is above 1/20 two sevenths."""
    curve = {"train": [(step, 0.4 if step < 6 else 0.3) for step in range(1, 11)]}
    few, many = {"ways": 5}, {"ways": 5, "train_ways": 20}
    training = {"method": "protonet", "meta_batch": 32}
    assert result(curves=curve, episode=few, training=training).collapsed
    assert not result(curves=curve, episode=many, training=training).collapsed


def test_pixels_that_are_not_standardised(result: Callable):
    assert "pixels         in [0, 1], not standardised\n" in result(fit={"normalise": "unit"}).report()
    assert "pixels         as stored, 0 to 255\n" in result(fit={"normalise": "none"}).report()


def test_another_split_and_other_initial_weights_are_said(result: Callable):
    text = result(data={"split_seed": 3, "limit_train": 40}, network={"init": "he"}).report()
    assert "split            drawn with split seed 3, not the usual 0\n" in text
    assert "initial weights  he\n" in text
    assert "part of the set  at most 40 images to train on, drawn class by class\n" in text
    assert "initial weights" not in result().report()


def test_paper_report_says_that_it_is_the_published_measure(result: Callable):
    text = result(evaluation={"protocol": "paper"}).report()
    assert "protocol paper" in text
    assert "75.00 %, the published measure: the maximum over training batches" in text
    assert "validation episodes" not in text


def test_a_server_is_opened_directly(result: Callable):
    text = result(uri="http://mlflow.example:5000/").report()
    assert "http://mlflow.example:5000/#/experiments/7/runs/abc?workflowType=machine_learning" in text
    assert "mlflow ui" not in text
