import hashlib
import json

import mlflow
import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from arelu_meta.data import splits
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.volumes import prepare_volumes
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.command import read_flags
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.images import divide, load_split
from arelu_meta.kinds.segment.run import patient_dice
from arelu_meta.store.run_folder import RunFolder
from arelu_meta.training.losses import dice_loss
from tests.supervised_runs import artifacts, interrupted_after, no_model, same_weights, segment_spec
from tests.tiny_images import DIGITS, discs
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
RESUME = Execution(resume=True)


@pytest.mark.usefixtures("no_model")
def test_a_network_that_its_last_step_broke_has_diverged(store_uri):
    """NaN marks no pixel, and a slice without a tumour would score 1 for it."""
    training = {"epochs": 1, "batch_size": 1000, "lr": 1e30, "optimizer": "sgd", "augment": "none"}
    with pytest.raises(DivergedError, match="not finite"):
        run(segment_spec(training=training))
    client = MlflowClient(store_uri)
    (stored,) = client.search_runs([client.get_experiment_by_name("arelu_meta").experiment_id])
    assert stored.info.status == "FAILED"
    assert not [name for name in stored.data.metrics if name.startswith("test/")]


def test_dice_of_each_patient():
    """All marked, discs of 29 pixels (radius 3) in 256: 2 * 29 / (29 + 256) in each volume."""

    class AllMarked(nn.Module):
        def forward(self, x):
            return torch.ones_like(x)

    scores = patient_dice(AllMarked(), discs())
    assert list(scores) == [f"patient_{number}" for number in range(6)]
    assert all(score == pytest.approx(58 / 285) for score in scores.values())


def test_dice_of_the_largest_part():
    """The disc of 29 pixels, and 4 more in a corner: 58 / 62 of each slice, or 1 where the corner is left out."""

    class DiscAndCorner(nn.Module):
        def forward(self, x):
            marked = x - 0.5
            marked[:, :, :2, :2] = 1
            return marked

    assert list(patient_dice(DiscAndCorner(), discs()).values()) == [pytest.approx(58 / 62)] * 6
    assert list(patient_dice(DiscAndCorner(), discs(), largest=True).values()) == [1.0] * 6


VOLUMES = {
    "drop_ends": True,
    "crop_volumes": True,
    "percentiles": [10, 99],
    "standardise_volumes": True,
    "draw_by_area": True,
    "largest_component": True,
}


@pytest.mark.usefixtures("no_model")
def test_a_run_by_the_procedure_of_buda(store_uri, monkeypatch, tmp_path):
    """Two of four slices are left of each patient; drawn slices and all come out of a checkpoint, too."""
    spec = segment_spec(volumes=VOLUMES)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    assert list(whole.slices.values()) == [2]
    stored = MlflowClient(store_uri).get_run(whole.run_id)
    assert stored.data.params["percentiles"] == "(10.0, 99.0)"
    options = {"drop_ends": True, "crop": True, "percentiles": (10, 99), "standardise": True}
    split = load_split(spec.data, shape=spec.fit, prepare=lambda images: prepare_volumes(images, **options))
    assert stored.data.tags["data_digest"] == split.train.digest
    assert patient_dice(whole.network, split.test, largest=True) == pytest.approx(whole.patients)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(1))
    assert same_weights(run(spec, RESUME).network, whole.network)


def test_the_task_holds_ten_of_110_patients_back_to_choose_and_ten_to_test():
    """As many as in the procedure of Buda; under the paper's protocol the other hundred train."""
    spec, _ = read_flags("segment", ["--task", "lgg"])
    slices = torch.arange(110)
    groups = {"groups": slices, "group_names": tuple(map(str, range(110)))}
    images = ImageSet("lgg", torch.zeros(110, 1, 2, 2, dtype=torch.uint8), 0 * slices, ("any",), **groups)
    split = divide(images, spec.data)
    assert [len(getattr(split, part)) for part in splits.SUBSETS] == [90, 10, 10]
    assert (spec.training.epochs, spec.evaluation.protocol) == (100, "sound")
    assert spec.volumes.model_dump(mode="json") == VOLUMES


def test_settings_of_volumes_count_where_they_are_not_as_before():
    """Each makes another run; at their defaults the identity is the hash without them."""
    content = segment_spec().model_dump(mode="json", exclude={"summary", "volumes"})
    del content["network"]["backbone"], content["network"]["init"], content["data"]["split_seed"]
    for name in ("crop_scale", "randaugment", "color_jitter", "random_erasing", "mixup", "cutmix"):
        del content["training"][name]
    assert segment_spec().identity == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    changed = {segment_spec(volumes={name: value}).identity for name, value in VOLUMES.items()}
    assert len(changed | {segment_spec().identity}) == 1 + len(VOLUMES)


def test_a_whole_run_is_in_the_store(store_uri):
    spec = segment_spec()
    result = run(spec)
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["filters"] == "2"
    split = load_split(spec.data, shape=spec.fit)
    wanted = {"kind": "segment", "protocol": "sound", "held_out": "groups", "split_digest": split.digest}
    assert wanted.items() <= stored.data.tags.items()
    history = metric_history(store_uri, result.run_id)
    assert [step for step, _ in history["train/loss"]] == [1, 2, 3]
    assert [step for step, _ in history["validation/dice"]] == [1, 2, 3]
    assert "train/accuracy" not in history
    # 16 slices of four patients in batches of 4; validation in batches of 4 too, which are one patient
    assert [step for step, _ in history["train/loss_by_step"]] == list(range(1, 13))
    with torch.no_grad():
        logits = result.network.eval()(split.validation.pixels(torch.arange(4)))
    loss = dice_loss(logits, split.validation.masks.float()).item()
    assert dict(history["validation/loss"])[result.selected_epoch] == pytest.approx(loss, rel=1e-5)
    assert history["test/dice"] == [(3, pytest.approx(result.dice))]
    assert history["test/n"] == [(3, 1)]
    in_grid = {file.partition("+timestamp")[0] for file in artifacts(store_uri, result.run_id) if "images/" in file}
    assert in_grid == {"images/overlays+step+3", "images/activation_curves+step+3"}
    assert patient_dice(result.network, split.test) == pytest.approx(result.patients)
    assert list(result.slices.values()) == [4]
    assert {
        "spec.json",
        "patients.csv",
        "figures/training_curve.png",
        "figures/overlays.png",
    } <= artifacts(store_uri, result.run_id)
    table = mlflow.artifacts.load_text(f"runs:/{result.run_id}/patients.csv").splitlines()
    assert table[0] == "patient,dice,slices"
    (name, score), *_ = result.patients.items()
    assert table[1:] == [f"{name},{score:.6f},4"]


@pytest.mark.usefixtures("no_model")
def test_the_last_epoch_where_nothing_is_chosen(store_uri):
    """Six patients: one tests, five train."""
    result = run(segment_spec(evaluation={"select": "last"}))
    history = metric_history(store_uri, result.run_id)
    assert "validation/dice" not in history
    assert result.selected_epoch == 3
    assert len(result.patients) == 1
    split = load_split(result.spec.data, shape=result.spec.fit, train_on_validation=True)
    assert len(split.train.groups.unique()) == 5
    assert {"figures/overlays.png", "figures/layers.png"} <= artifacts(store_uri, result.run_id)
    assert "figures/training_curve.png" not in artifacts(store_uri, result.run_id)


@pytest.mark.usefixtures("store", "no_model")
def test_it_learns():
    """Bright discs on a dark ground are no hard problem: better than marking everything, 58 / 285."""
    result = run(segment_spec(training={"epochs": 12, "lr": 0.02}, network={"filters": 4}))
    assert result.dice > 2 * 58 / 285


@pytest.mark.usefixtures("no_model")
def test_the_paper_selects_on_test_and_says_so(store_uri):
    result = run(segment_spec(evaluation={"protocol": "paper"}))
    split = load_split(result.spec.data, shape=result.spec.fit, train_on_validation=True)
    assert len(split.train.groups.unique()) == 5  # of six patients, as the test has one
    assert MlflowClient(store_uri).get_run(result.run_id).data.tags["data_digest"] == split.train.digest
    history = metric_history(store_uri, result.run_id)
    assert "validation/dice" not in history
    assert "test/n" not in history
    best = max(score for _, score in history["test/dice"])
    assert history["paper/best_epoch_test/dice"] == [(3, pytest.approx(best))]
    assert result.selected_epoch == next(step for step, score in history["test/dice"] if score == best)


@pytest.mark.usefixtures("store", "no_model")
def test_the_seed_decides_every_bit():
    one, same, other = (run(segment_spec(seed=seed, training={"epochs": 1})) for seed in (0, 0, 1))
    assert same_weights(one.network, same.network)
    assert one.patients == same.patients
    assert not same_weights(one.network, other.network)
    assert one.patients.keys() == other.patients.keys()


@pytest.mark.usefixtures("no_model")
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(store_uri, monkeypatch, tmp_path):
    """With an activation that draws; the default is in the contract of all kinds."""
    spec = segment_spec(network={"activation": "rrelu"})
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(2))
    stopped = RunFolder(spec).load()
    assert stopped["trainer"]["done"] == 2
    assert MlflowClient(store_uri).get_run(stopped["run_id"]).info.status == "KILLED"
    resumed = run(spec, RESUME)
    assert resumed.run_id == stopped["run_id"]
    assert same_weights(resumed.network, whole.network)
    assert resumed.patients == whole.patients
    assert resumed.curves == whole.curves
    one, other = metric_history(store_uri, whole.run_id), metric_history(store_uri, resumed.run_id)
    for key in one.keys() - {"train/images_per_second"}:
        assert other[key] == one[key], key


WRONG = [
    ({"data": {"dataset": DIGITS, "split": "by_image"}}, "tiny_digits/train has no masks"),
    ({"data": {"dataset": "tests.tiny_images:without_patients", "split": "by_image"}}, "names no patients"),
    ({"fit": {"image_size": 20}}, "16"),
    ({"network": {"activation_options": {"alpha": "x"}}}, "activation 'arelu' cannot be made with alpha='x'"),
]


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input_opens_no_run(store, statuses, sections, message):
    with pytest.raises(InputError, match=message):
        run(segment_spec(**sections))
    assert statuses(store) == []
