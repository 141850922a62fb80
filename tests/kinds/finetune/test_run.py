"""Whole fine-tuning runs of a network of a few hundred weights."""

import numpy as np
import pytest
import torch
import torchvision
from mlflow import MlflowClient
from PIL import Image
from safetensors import safe_open
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

from arelu_meta import data
from arelu_meta.data import splits
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.finetune.run import prepare
from arelu_meta.kinds.images import inputs_of_run
from arelu_meta.pretrained import find_model, read_weights
from arelu_meta.store.downloads import download_model
from arelu_meta.store.run_folder import RunFolder
from tests.photographs import SIZES, write_photographs
from tests.supervised_runs import artifacts, finetune_spec, interrupted_after, no_model, same_weights
from tests.tiny_images import DISCS, NEGATIVE
from tests.tiny_networks import TINY, saved_state
from tests.tiny_runs import MLFLOW_WARNINGS, metric_history

pytestmark = MLFLOW_WARNINGS
__all__ = ["no_model"]  # a fixture
RESUME = Execution(resume=True)


@pytest.fixture
def weights(tmp_path) -> str:
    torch.save(saved_state(), tmp_path / "net.pth")
    return str(tmp_path / "net.pth")


def test_a_whole_run_is_in_the_store_and_its_weights_start_another(store_uri, weights):
    spec = finetune_spec(network={"weights": weights})
    result = run(spec)
    stored = MlflowClient(store_uri).get_run(result.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["model"] == TINY
    digest = read_weights(weights, model=find_model(TINY)).digest
    wanted = {"kind": "finetune", "protocol": "sound", "head": "head", "weights_digest": digest}
    assert wanted.items() <= stored.data.tags.items()
    history = metric_history(store_uri, result.run_id)
    assert [step for step, _ in history["validation/accuracy"]] == [1, 2, 3]
    best = max(value for _, value in history["validation/accuracy"])
    assert history["validation/selected_accuracy"] == [(3, best)]
    assert history["test/accuracy"] == [(3, pytest.approx(result.test.mean))]
    assert 0 <= history["start/agreement"][0][1] <= 1
    assert {"spec.json", "surgery.txt", "figures/confusion.png"} <= artifacts(store_uri, result.run_id)
    split, _ = prepare(spec)
    with torch.no_grad():
        logits = result.network.eval()(split.test.pixels(torch.arange(len(split.test)))).numpy()
    np.testing.assert_allclose(logits, result.logits, rtol=1e-5, atol=1e-5)
    report = result.report()
    for part in (
        f"arelu in {TINY}: {NEGATIVE}",
        "2 sites from ReLU to AReLU, 4 parameters added",
        "head, new",
        f"python -m arelu_meta.predict {result.run_id} IMAGES...",
        weights,
    ):
        assert part in report

    model = f"runs:/{result.run_id}/model"
    (file,) = download_model(model).rglob("*.safetensors")
    with safe_open(file, "pt") as opened:
        assert torch.equal(opened.get_tensor("second.weight"), result.network.second.weight)
    read = read_weights(model, model=find_model(TINY))
    assert (read.inputs.image_size, read.inputs.mean) == (28, split.train.mean)
    with pytest.raises(InputError, match=r"'act\.alpha' is not in the network"):  # it has AReLU now, this one not
        prepare(finetune_spec(network={"weights": model, "activation": "own"}))
    with pytest.raises(InputError, match="cannot fetch runs:/0123"):
        prepare(finetune_spec(network={"weights": "runs:/0123/model"}))


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(("training", "advances"), [({"ema": 0.5}, 1), ({"freeze_epochs": 2, "schedule": "cosine"}, 2)])
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(
    store_uri, monkeypatch, tmp_path, weights, training, advances
):
    """Dropout, batch norm, augmentation and an averaged or frozen network: all of it comes out of the checkpoint."""
    spec = finetune_spec(network={"weights": weights}, training={"augment": "shift", **training})
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "other"))
    whole = run(spec)
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    with pytest.raises(KeyboardInterrupt):
        run(spec, bar=interrupted_after(advances))
    stopped = RunFolder(spec).load()
    assert stopped["trainer"]["done"] == advances
    resumed = run(spec, RESUME)
    assert resumed.run_id == stopped["run_id"]
    assert resumed.curves == whole.curves
    assert same_weights(resumed.network, whole.network)
    assert metric_history(store_uri, resumed.run_id)["test/accuracy"] == [(3, pytest.approx(whole.test.mean))]


@pytest.mark.usefixtures("store", "no_model")
def test_arms_share_split_head_and_batches():
    """At next to no rate the untrained network stays where it started: the same for both arms but for the swap."""
    own, prelu = (
        run(finetune_spec(network={"activation": name, "preserve": "always"}, training={"lr": 1e-12}))
        for name in ("own", "prelu")
    )
    np.testing.assert_allclose(own.logits, prelu.logits, rtol=1e-5, atol=1e-6)
    assert torch.equal(own.network.head.weight, prelu.network.head.weight)


def test_so_many_images_of_each_class_whatever_the_seed():
    few, again = (
        prepare(
            finetune_spec(seed=seed, data={"dataset": "digits"}, amount={"train_per_class": 3, "test_per_class": 2})
        )[0]
        for seed in (0, 1)
    )
    assert few.train.counts().tolist() == [3] * 10
    assert few.validation.counts().tolist() == few.test.counts().tolist() == [2] * 10
    assert torch.equal(data.load("digits").labels[few.indices["train"]], few.train.labels)
    assert few.digest == again.digest


def test_images_are_normalised_by_their_training_part_alone():
    split, _ = prepare(finetune_spec())
    assert split.train.channels == 3
    mean = split.train.images.float().mean((0, 2, 3)) / 255
    assert split.test.mean == pytest.approx(mean.tolist(), rel=1e-5)
    assert split.test.std == split.train.std


WRONG = [
    ({"data": {"dataset": DISCS}}, "discs has one class, 'disc'; two are needed at least"),
    ({"input": {"image_size": 5}}, "tiny cannot take images of 3x5x5"),
    ({"network": {"model": "resnet81"}}, "unknown model 'resnet81'; did you mean 'resnet18'"),
    ({"network": {"weights": "no.pth"}}, "no weights file 'no.pth'"),
    ({"network": {"head": "heat"}}, "`head` heat: no linear layer"),
    ({"network": {"activation": "maxout"}}, "'maxout' takes 2 inputs per output"),
]


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input_opens_no_run(store, statuses, sections, message):
    with pytest.raises(InputError, match=message):
        run(finetune_spec(**sections))
    assert statuses(store) == []


def test_a_target_without_parts_is_divided_by_image():
    spec = finetune_spec(data={"dataset": "tests.tiny_images:digits"})
    split, _ = prepare(spec)
    assert [len(getattr(split, part)) for part in splits.SUBSETS] == [120, 40, 40]
    published, _ = prepare(finetune_spec())
    assert len(published.test) == 40
    assert torch.equal(published.indices["test"], torch.arange(0, 200, 5))


def test_the_paper_trains_on_all_that_is_not_tested():
    split, _ = prepare(finetune_spec(evaluation={"protocol": "paper"}))
    assert [len(getattr(split, part)) for part in splits.SUBSETS] == [160, 0, 40]


def test_the_weights_are_part_of_the_identity(weights):
    assert finetune_spec().identity != finetune_spec(network={"weights": weights}).identity


def test_a_part_of_the_set_is_what_is_trained_and_tested_on():
    whole, _ = prepare(finetune_spec())
    part, _ = prepare(finetune_spec(data={"dataset": NEGATIVE, "split": "auto", "limit_train": 50, "limit_test": 20}))
    assert len(whole.train) > 50 == len(part.train)
    assert len(part.validation) == len(part.test) == 20


@pytest.mark.usefixtures("store", "no_model")
def test_wherever_images_wait_the_run_is_the_same_bit_for_bit(tmp_path, monkeypatch):
    """90 photographs of 3x64x64 are 1.1 MB: in memory, beyond 1 MiB decoded to a file, and kept in host memory."""
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for label in ("ant", "bee"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(45):
            pixels = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    training = {"epochs": 2, "augment": "standard", "mixup": 0.2, "cutmix": 1.0, "randaugment": (1, 9)}
    training |= {"color_jitter": (0.4, 0.4, 0.4, 0.1), "random_erasing": 0.25}
    spec = finetune_spec(data={"dataset": str(tmp_path / "photos")}, training=training)
    results = [run(spec, Execution(**how)) for how in ({}, {"image_memory": 1}, {"keep": "cpu"})]
    assert len(list((tmp_path / "cache" / "images").glob("photos-*.npy"))) == 1
    for other in results[1:]:
        same_weights(results[0].network, other.network)
        assert np.array_equal(results[0].logits, other.logits)
    plain = run(finetune_spec(data={"dataset": str(tmp_path / "photos")}, training={"epochs": 2}))
    assert not np.array_equal(plain.logits, results[0].logits)


@pytest.mark.parametrize(("given", "size"), [(0.5, 16), (1.0, 8)])
def test_the_centre_is_cut_out_as_it_is_when_networks_are_published(given: float, size: int):
    """Images of 28 pixels brought to 8: scaled to 16 and the inner 8 taken, or scaled to 8."""
    spec = finetune_spec(input={"image_size": 8, "crop_pct": given})
    split, assembled = prepare(spec)
    assert assembled.inputs.crop_pct == given
    raw = data.load(NEGATIVE).images[split.indices["test"]].expand(-1, 3, -1, -1).float()
    scaled = torch.nn.functional.interpolate(raw, size=(size, size), mode="bilinear", antialias=True).round()
    edge = (size - 8) // 2
    wanted = scaled[:, :, edge : edge + 8, edge : edge + 8]
    assert torch.equal(split.test.images.float(), wanted)
    assert (spec.identity == finetune_spec(input={"image_size": 8}).identity) == (given == 1.0)


@pytest.mark.filterwarnings("ignore:images differ in size")
@pytest.mark.parametrize("resize", ["scale", "squash"])
@pytest.mark.parametrize("share", [1.0, 0.75])
@pytest.mark.parametrize("sizes", [SIZES, ((40, 60),)])
def test_photographs_are_to_the_model_what_they_were_in_training(tmp_path, resize, share, sizes):
    """Where a share is cut out, files of several sizes are read at what it is cut out of: 24 / 0.75 is 32."""
    files = write_photographs(tmp_path / "photos", sizes=sizes)
    section = {"image_size": 24, "resize": resize, "crop_pct": share}
    spec = finetune_spec(data={"dataset": str(tmp_path / "photos")}, input=section)
    split, assembled = prepare(spec)
    inputs = inputs_of_run(split.test, spec.input, assembled.inputs.crop_pct)
    assert inputs.read_size == (0 if len(sizes) == 1 else 24 if share == 1 else 32)
    found = prepare_images([files[number] for number in split.indices["test"]], inputs)
    assert torch.equal(found, split.test.pixels(torch.arange(len(split.test))))


@pytest.mark.filterwarnings("ignore:images differ in size")
def test_a_published_network_sees_the_centre_as_torchvision_shows_it(tmp_path):
    """The transform that torchvision publishes with the weights, but for its filter: files are read by Lanczos."""
    files = write_photographs(tmp_path / "photos", count=5)
    network = {"model": "squeezenet1_1", "weights": "none", "activation": "own"}
    spec = finetune_spec(data={"dataset": str(tmp_path / "photos")}, network=network, input={"crop_pct": 0.0})
    split, assembled = prepare(spec)
    published = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    way = Compose([Resize(published.resize_size, InterpolationMode.LANCZOS), CenterCrop(published.crop_size)])
    assert assembled.inputs.crop_pct == 224 / 256
    for image, number in zip(split.test.images, split.indices["test"], strict=True):
        assert np.array_equal(image.permute(1, 2, 0), way(Image.open(files[number])))


def test_a_crop_of_a_crop_is_refused():
    with pytest.raises(InputError, match="`crop_pct` scales before it cuts"):
        finetune_spec(input={"crop_pct": 0.9, "resize": "crop"})
