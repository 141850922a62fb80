import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.classify.run import accuracy_on, prepare
from arelu_meta.kinds.execution import Execution, TrainingExecution
from arelu_meta.kinds.images import load_split
from arelu_meta.store.run_folder import RunFolder
from tests.supervised_runs import artifacts, classify_spec, interrupted_after, no_model, same_weights
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
RESUME = Execution(resume=True)


def test_a_whole_run_is_in_the_store(store_uri):
    spec = classify_spec()
    result = run(spec)
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["lr"] == "0.02"
    assert stored.data.params["activation"] == "arelu"
    split = load_split(spec.data, shape=spec.fit)
    wanted = {"kind": "classify", "protocol": "sound", "held_out": "images", "spec_hash": spec.identity}
    wanted |= {"split_digest": split.digest, "data_digest": split.train.digest, "processes": "1"}
    assert wanted.items() <= stored.data.tags.items()
    assert {item.dataset.name for item in stored.inputs.dataset_inputs} == {
        f"tiny_digits/{part}" for part in ("train", "validation", "test")
    }
    history = metric_history(store_uri, result.run_id)
    for key in ("train/loss", "train/accuracy", "validation/accuracy", "train/images_per_second"):
        assert [step for step, _ in history[key]] == [1, 2, 3], key
    right = result.logits.argmax(1) == split.test.labels.numpy()
    assert history["test/accuracy"] == [(3, pytest.approx(right.mean()))]
    assert history["test/n"] == [(3, len(split.test))]
    assert history["test/accuracy_top5"] == [(3, pytest.approx(result.top5))]
    assert not any(key.startswith("paper") for key in history)
    # 120 images in batches of 32 are four steps an epoch, and their mean by images the loss of the epoch
    assert [step for step, _ in history["train/loss_by_step"]] == list(range(1, 13))
    steps = np.array([loss for _, loss in history["train/loss_by_step"]]).reshape(3, 4)
    np.testing.assert_allclose(steps @ [32, 32, 32, 24] / 120, [loss for _, loss in history["train/loss"]], rtol=1e-5)
    with torch.no_grad():
        logits = result.network.eval()(split.validation.pixels(torch.arange(len(split.validation))))
    loss = torch.nn.functional.cross_entropy(logits, split.validation.labels).item()
    assert dict(history["validation/loss"])[result.selected_epoch] == pytest.approx(loss, rel=1e-5)
    assert {
        "spec.json",
        "predictions.csv",
        "figures/training_curve.png",
        "figures/confusion.png",
        "figures/activation_curves.png",
    } <= artifacts(store_uri, result.run_id)
    table = mlflow.artifacts.load_text(f"runs:/{result.run_id}/predictions.csv").splitlines()
    assert table[0] == "label,prediction"
    rows = np.array([[int(cell) for cell in line.split(",")] for line in table[1:]])
    assert np.array_equal(rows[:, 0], split.test.labels.numpy())
    assert np.array_equal(rows[:, 1], result.logits.argmax(1))


@pytest.mark.usefixtures("no_model")
def test_the_best_on_validation_is_tested(store_uri):
    """The network given back is that of the selected epoch: its answers are the logits."""
    result = run(classify_spec(training={"epochs": 4}))
    scores = metric_history(store_uri, result.run_id)["validation/accuracy"]
    assert result.selected_epoch == max(scores, key=lambda entry: (entry[1], -entry[0]))[0]
    split = load_split(result.spec.data, shape=result.spec.fit)
    with torch.no_grad():
        again = result.network.eval()(split.test.pixels(torch.arange(len(split.test)))).numpy()
    assert np.allclose(again, result.logits, atol=1e-5)


@pytest.mark.usefixtures("no_model")
def test_the_paper_selects_on_test_and_says_so(store_uri):
    """Of 20 images of each digit 4 test, and the other 160 train: none is held back to validate."""
    result = run(classify_spec(evaluation={"protocol": "paper"}))
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert {item.dataset.name for item in stored.inputs.dataset_inputs} == {"tiny_digits/train", "tiny_digits/test"}
    split = load_split(result.spec.data, shape=result.spec.fit, train_on_validation=True)
    assert (len(split.train), stored.data.tags["data_digest"]) == (160, split.train.digest)
    assert "of 3; no images are held back to validate, all of them were trained on" in result.report()
    history = metric_history(store_uri, result.run_id)
    assert not any(name.startswith("validation/") for name in history)
    assert [step for step, _ in history["test/loss"]] == [1, 2, 3]
    assert "test/n" not in history
    best = max(score for _, score in history["test/accuracy"])
    assert history["paper/best_epoch_test/accuracy"] == [(3, pytest.approx(best))]
    assert stored.data.tags["protocol"] == "paper"


@pytest.mark.usefixtures("no_model")
def test_the_paper_without_a_choice_tests_every_epoch_and_reports_the_last(store_uri, monkeypatch):
    """Scores 0.9, 0.2, 0.3 on the test images: 0.9 is not taken, and the weights are those of the third epoch."""
    scores = iter([0.9, 0.2, 0.3])
    spec = classify_spec(evaluation={"protocol": "paper", "select": "last"})
    with monkeypatch.context() as patched:
        patched.setattr("arelu_meta.kinds.classify.run.accuracy_of", lambda *_: next(scores))
        result = run(spec)
    history = metric_history(store_uri, result.run_id)
    assert history["test/accuracy"][:2] == [(1, 0.9), (2, 0.2)]
    assert [value for step, value in history["test/accuracy"] if step == 3] == pytest.approx(
        sorted([0.3, result.test.mean])
    )
    assert not any(name.startswith("paper/") for name in history)
    assert result.selected_epoch == 3
    assert same_weights(result.network, run(classify_spec(evaluation={"select": "last"})).network)
    assert result.headline.startswith("test accuracy ")


@pytest.mark.usefixtures("store", "no_model")
def test_the_seed_decides_every_bit():
    one, same, other = (run(classify_spec(seed=seed, training={"epochs": 1})) for seed in (0, 0, 1))
    assert same_weights(one.network, same.network)
    assert np.array_equal(one.logits, same.logits)
    assert not same_weights(one.network, other.network)
    assert np.array_equal(one.labels, other.labels)  # the split is the same for every seed


@pytest.mark.usefixtures("no_model")
def test_the_last_epoch_where_nothing_is_chosen(store_uri):
    """Validation trains too: 160 of 200 images; no validation metric, the last epoch is tested, and it is said."""
    result = run(classify_spec(evaluation={"select": "last"}))
    history = metric_history(store_uri, result.run_id)
    assert "validation/accuracy" not in history
    assert result.selected_epoch == 3
    assert "nothing: tested after epoch 3; no images are held back to validate" in result.report()
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert {item.dataset.name for item in stored.inputs.dataset_inputs} == {"tiny_digits/train", "tiny_digits/test"}
    split = load_split(result.spec.data, shape=result.spec.fit, train_on_validation=True)
    assert len(split.train) == 160
    assert stored.data.tags["data_digest"] == split.train.digest


@pytest.mark.usefixtures("no_model")
def test_layers_are_drawn_unless_switched_off_and_logged_if_asked(store_uri):
    result = run(classify_spec(training={"epochs": 2}), TrainingExecution(log_layers=True))
    history = metric_history(store_uri, result.run_id)
    for layer in ("block1.2", "block2.2", "block3.2"):
        for quantity in ("rms", "gradient", "dead_alpha"):
            assert [step for step, _ in history[f"layers/{layer}/{quantity}"]] == [0, 1, 2]
    assert "figures/layers.png" in artifacts(store_uri, result.run_id)
    for drawn in (True, False):
        other = run(classify_spec(training={"epochs": 2}), TrainingExecution(layer_statistics=drawn))
        assert same_weights(other.network, result.network)
        history = metric_history(store_uri, other.run_id)
        assert not any(key.startswith("layers/") for key in history)
        assert [step for step, _ in history["activation/block1.2.alpha"]] == [1, 2]
        assert ("figures/layers.png" in artifacts(store_uri, other.run_id)) == drawn


SETTINGS = [  # the defaults are in the contract of all kinds
    {
        "network": {"activation": "rrelu"},
        "training": {"ema": 0.5, "augment": "shift", "schedule": "cosine", "patience": 3},
    },
    {"evaluation": {"protocol": "paper"}},
]


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("sections", SETTINGS, ids=str)
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(store_uri, monkeypatch, tmp_path, sections):
    spec = classify_spec(**sections)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(2))
    stopped = RunFolder(spec).load()
    assert stopped["trainer"]["done"] == 2
    assert MlflowClient(store_uri).get_run(stopped["run_id"]).info.status == "KILLED"
    resumed = run(spec, RESUME)
    assert resumed.run_id == stopped["run_id"] != whole.run_id
    assert MlflowClient(store_uri).get_run(resumed.run_id).info.status == "FINISHED"
    assert same_weights(resumed.network, whole.network)
    assert np.array_equal(resumed.logits, whole.logits)
    assert (resumed.selected_epoch, resumed.curves) == (whole.selected_epoch, whole.curves)
    one, other = metric_history(store_uri, whole.run_id), metric_history(store_uri, resumed.run_id)
    for key in one.keys() - {"train/images_per_second"}:
        assert other[key] == one[key], key


WRONG = [
    ({"network": {"backbone_options": {"filters": 3}}}, "unknown option of backbone 'mnist_conv': 'filters'"),
    ({"fit": {"image_size": 20}}, "mnist_conv takes images of 28 to 35 pixels a side, not 20x20"),
    ({"data": {"split": "published"}}, "tiny_digits has no subset 'train'"),
]


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input_opens_no_run(store, statuses, tmp_path, sections, message):
    with pytest.raises(InputError, match=message):
        run(classify_spec(**sections))
    assert statuses(store) == []
    assert not (tmp_path / "runs").exists()


def test_accuracy_on_a_set():
    """The network answers 1 for pixels above 1.5 / 255: images 2 and 3 of 0..3, labels 0 1 1 0: right are 0 and 2."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0] * 3, [85.0] * 3]))  # three pixels: 255 x
        network[1].bias.copy_(torch.tensor([0.0, -1.5]))
    pixels = torch.arange(4, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 1, 3).contiguous()
    images = ImageSet("tiny", pixels, torch.tensor([0, 1, 1, 0]), ("a", "b"))
    assert accuracy_on(network, images) == 0.5


@pytest.mark.usefixtures("no_model")
def test_a_network_that_its_last_step_broke_has_diverged(store_uri):
    """One epoch of one step: the loss was finite before it, and the answers after it are not."""
    spec = classify_spec(training={"epochs": 1, "batch_size": 1000, "lr": 1e30, "optimizer": "sgd"})
    with pytest.raises(DivergedError, match="outputs of the network are not finite after training; lower `lr`"):
        run(spec)
    client = MlflowClient(store_uri)
    (stored,) = client.search_runs([client.get_experiment_by_name("arelu_meta").experiment_id])
    assert stored.info.status == "FAILED"
    assert "not finite" in stored.data.tags["diverged"]
    assert "test/accuracy" not in stored.data.metrics


def test_all_arms_see_the_same_augmented_and_mixed_batches():
    """Batches depend on the seed alone, not on the activation or on what was drawn elsewhere."""
    training = {"augment": "standard", "mixup": 0.2, "cutmix": 1.0, "randaugment": (2, 9), "random_erasing": 0.5}
    drawn = []
    for name, seed in (("relu", 0), ("arelu", 0), ("relu", 1)):
        spec = classify_spec(network={"activation": name}, training=training, seed=seed)
        torch.manual_seed(len(drawn))
        prepared = prepare(spec, TrainingExecution(), torch.device("cpu"))
        drawn.append(next(iter(prepared.trainer.batches)))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert tuple(drawn[0][1].shape) == (32, 10)
