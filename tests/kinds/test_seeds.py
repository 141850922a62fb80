import dataclasses
import gc
import json
import weakref

import numpy as np
import pytest
from mlflow import MlflowClient

from arelu_meta import kinds
from arelu_meta.console import progress
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.classify import run as classify
from arelu_meta.kinds.execution import TrainingExecution
from arelu_meta.kinds.seeds import SeedScore, SeedsResult, run_seeds
from tests.supervised_runs import artifacts, classify_spec, segment_spec
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
PLAIN = TrainingExecution(keep_model=False)
# At this rate float32's rounding stays rounding; at a larger one training amplifies it without bound.
GENTLE = {"training": {"lr": 1e-4, "epochs": 2}}


def seeds(text: str, **flags: object) -> TrainingExecution:
    return TrainingExecution(seeds=text, keep_model=False, **flags)


def test_every_seed_is_the_run_it_is_alone_and_is_not_repeated(store_uri):
    """Seed 1 alone, then 0 to 2: 1 is not repeated; the others have identities, metrics and figures of their own."""
    spec = classify_spec(**GENTLE)
    alone = run(spec.model_copy(update={"seed": 1}), PLAIN)
    result = run_seeds(spec, seeds("0-2"))
    assert [each.finished_before for each in result.seeds] == [False, True, False]
    assert result.seeds[1].run_id == alone.run_id
    assert result.seeds[1].score == pytest.approx(alone.test.mean)
    assert result.test.mean == pytest.approx(np.mean([each.score for each in result.seeds]))
    runs = {each.seed: MlflowClient(store_uri).get_run(each.run_id) for each in result.seeds}
    for seed, stored in runs.items():
        assert stored.info.status == "FINISHED"
        assert stored.data.params["seed"] == str(seed)
        assert stored.data.tags["spec_hash"] == spec.model_copy(update={"seed": seed}).identity
    assert [each.finished_before for each in run_seeds(spec, seeds("2,0")).seeds] == [True, True]


def test_bars_say_which_seed(store_uri):
    shown = []

    def bar(description, total):
        shown.append(description)
        return progress.silent(description, total)

    result = run_seeds(classify_spec(**GENTLE), seeds("3,5"), bar)
    assert shown == ["seed 3, train", "seed 5, train"]
    document = json.loads(json.dumps(result.as_dict()))
    assert [each["seed"] for each in document["seeds"]] == [3, 5]
    assert document["metrics"]["test/accuracy"]["mean"] == pytest.approx(np.mean([each.score for each in result.seeds]))
    assert document["metrics"]["test/accuracy"]["n"] == 2
    assert document["tracking_uri"] == store_uri


def test_together_is_one_by_one(store_uri):
    """The same metrics epoch by epoch, to rounding, and the same records, as the separate runs of the same seeds."""
    spec = classify_spec(**GENTLE, network={"backbone": "conv4", "backbone_options": {"filters": 4}, "norm": "running"})
    apart = run_seeds(spec, seeds("0-1", experiment="apart"))
    together = run_seeds(spec, seeds("0-1", experiment="together", together=True))
    for one, other in zip(apart.seeds, together.seeds, strict=True):
        assert one.run_id != other.run_id
        assert other.score == pytest.approx(one.score)
        first, second = metric_history(store_uri, one.run_id), metric_history(store_uri, other.run_id)
        assert first.keys() == second.keys()
        for key in first.keys() - {"train/images_per_second"}:
            for (step, value), (again, same) in zip(first[key], second[key], strict=True):
                assert step == again
                assert same == pytest.approx(value, rel=1e-3, abs=1e-4), key
        assert artifacts(store_uri, one.run_id) == artifacts(store_uri, other.run_id)


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_segmentation_one_by_one():
    result = run_seeds(segment_spec(training={"epochs": 1}), seeds("0-1"))
    assert len({each.run_id for each in result.seeds}) == 2
    again = run_seeds(segment_spec(training={"epochs": 1}), seeds("0-1"))
    assert [each.score for each in again.seeds] == pytest.approx([each.score for each in result.seeds])
    assert all(each.finished_before for each in again.seeds)


def test_wrong_input_opens_no_run(store, statuses, monkeypatch):
    with pytest.raises(InputError, match="`seed=3` and `seeds=0-1` both name seeds"):
        run_seeds(classify_spec(seed=3), seeds("0-1"))
    with pytest.raises(InputError, match="`together` is for classifiers"):
        run_seeds(segment_spec(), seeds("0-1", together=True))
    with pytest.raises(InputError, match="`together` does not go with `ema`"):
        run_seeds(classify_spec(training={"ema": 0.5}), seeds("0-1", together=True))
    with pytest.raises(InputError, match=r"are several runs; use arelu_meta\.kinds\.seeds\.run_seeds"):
        run(classify_spec(), seeds("0-1"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="start it without torchrun"):
        run_seeds(classify_spec(), seeds("0-1"))
    assert statuses(store) == []


@pytest.mark.usefixtures("store")
@pytest.mark.slow
def test_networks_are_built_one_at_a_time(monkeypatch):
    """When a network is built, those of the seeds before are gone."""
    built, alive = [], []

    def prepare(*arguments, **options):
        gc.collect()
        alive.append(sum(network() is not None for network in built))
        prepared = classify.prepare(*arguments, **options)
        built.append(weakref.ref(prepared.trainer.network))
        return prepared

    entry = dataclasses.replace(kinds.entry("classify"), prepare=f"{__name__}:prepare")
    monkeypatch.setitem(globals(), "prepare", prepare)
    monkeypatch.setattr(kinds, "entry", lambda _: entry)
    run_seeds(classify_spec(training={"epochs": 1}), seeds("0-2"))
    assert alive == [0, 0, 0]


def result(*scores: float, found: int = 0, **sections: object) -> SeedsResult:
    seeds = [SeedScore(seed, score, f"run{seed}", finished_before=seed < found) for seed, score in enumerate(scores)]
    return SeedsResult(classify_spec(**sections), seeds, 1.0, "sqlite:///mlflow.db")


def test_interval_over_seeds_by_hand():
    """0.5, 0.6, 0.7: mean 0.6, deviation 0.1, t(0.975, 2) = 4.3027, so 4.3027 * 0.1 / sqrt(3) = 0.2484."""
    report = result(0.5, 0.6, 0.7).report()
    assert "test accuracy  60.00 % ± 24.84 (n = 3), 95 % interval over seeds" in report
    assert "finished before" not in report
    assert "  look at it     mlflow ui --backend-store-uri sqlite:///mlflow.db\n" in report
    assert "  use one        python -m arelu_meta.predict run0 IMAGES...\n" in report
    assert [line.split()[:3] for line in report.splitlines()[-3:]] == [
        ["0", "50.00", "run0"],
        ["1", "60.00", "run1"],
        ["2", "70.00", "run2"],
    ]


def test_one_seed_has_no_interval():
    assert result(0.5).test is None
    assert "50.00 % (n = 1, no interval)" in result(0.5).report()


def test_finished_runs_and_parts_of_the_set_are_said():
    report = result(0.5, 0.6, 0.7, found=2, data={"limit_train": 90}).report()
    assert "2 of 3 runs were finished before" in report
    assert "at most 90 images to train on, drawn class by class" in report
    assert report.splitlines()[-1].endswith("run2")


def test_segmentation_and_the_papers_protocol():
    spec = segment_spec(evaluation={"protocol": "paper"})
    report = SeedsResult(spec, [SeedScore(0, 0.5, "a", finished_before=False)], 1.0, "x").report()
    assert report.startswith("arelu in unet: tests.tiny_images:discs (task tiny), adam lr 0.01, protocol paper, 1")
    assert "best test epoch, Dice" in report
    assert result(0.5, 0.7).test.mean == pytest.approx(0.6)
