"""What cannot be measured is refused when the images are read, not after the training."""

import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

import arelu_meta
from arelu_meta import classify, maml
from arelu_meta.data import splits
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.data.rows import HostImages, ImageRows
from arelu_meta.errors import InputError, RunError
from arelu_meta.kinds import session
from arelu_meta.kinds.classify.spec import ClassifySpec
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import EpisodeInputSection
from arelu_meta.kinds.images import inputs_of_run, load_split, reader_options
from arelu_meta.kinds.sections import DataSection, InputSection
from arelu_meta.runtime.hardware import threads
from arelu_meta.runtime.waiting import waiting_policy
from arelu_meta.store.connection import get_run
from arelu_meta.store.run_folder import RunFolder
from tests.photographs import SIZES, write_photographs
from tests.supervised_runs import no_model
from tests.tiny_runs import MLFLOW_WARNINGS

__all__ = ["no_model"]  # a fixture


def npz(path: Path, labels: list[int]) -> str:
    np.savez(path / "mine.npz", x=np.zeros((len(labels), 28, 28), np.uint8), y=np.array(labels))
    return str(path / "mine.npz")


def test_one_test_image_gives_no_interval(tmp_path: Path):
    arrays = {"x_train": np.zeros((6, 28, 28), np.uint8), "y_train": np.array([0, 0, 0, 1, 1, 1])}
    np.savez(tmp_path / "mine.npz", **arrays, x_test=np.zeros((1, 28, 28), np.uint8), y_test=np.array([1]))
    with pytest.raises(InputError, match=r"1 test image of .*mine.npz gives no interval; at least 2 are needed"):
        load_split(DataSection(dataset=str(tmp_path / "mine.npz"), split="published"))


@pytest.mark.parametrize("split", ["by_image", "by_class"])
def test_the_split_seed_draws_what_is_held_out(split: str):
    section = DataSection(dataset="digits", split=split, validation_classes=2, test_classes=3)
    parts = [load_split(section.model_copy(update={"split_seed": seed})) for seed in (0, 1, 1)]
    assert parts[0].digest == load_split(section).digest
    assert parts[0].digest != parts[1].digest == parts[2].digest
    if split == "by_class":
        held_out = [set(part.test.labels.tolist()) for part in parts]
        assert held_out[0] != held_out[1]
        assert {len(classes) for classes in held_out} == {3}
    else:
        assert [len(part.test) for part in parts] == [359] * 3


def test_the_split_seed_draws_the_images_that_are_kept():
    kept = [load_split(DataSection(dataset="digits", limit_train=50, split_seed=seed)).indices for seed in (0, 3)]
    assert kept[0]["train"].tolist() != kept[1]["train"].tolist()


def one_line(main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.usefixtures("store")
def test_a_limit_of_one_is_refused_with_the_flags(capsys: pytest.CaptureFixture[str]):
    assert "--limit-test 1: must be at least 2" in one_line(classify.main, ["--limit-test", "1"], capsys)


@pytest.mark.usefixtures("store")
def test_a_single_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--data", npz(tmp_path, [0] * 40), "--epochs", "1"]
    assert "has one class, '0'; two are needed at least" in one_line(classify.main, words, capsys)


@pytest.mark.usefixtures("store")
def test_no_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "holds no images" in one_line(maml.main, ["--data", npz(tmp_path, []), "--iterations", "1"], capsys)


def test_a_folder_may_be_named_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path)
    assert DataSection(dataset="birds").dataset == "birds"
    with pytest.raises(ValueError, match="unknown dataset 'bird'"):
        DataSection(dataset="bird")


@pytest.mark.parametrize(
    ("dataset", "given", "resize", "wanted"),
    [
        ("photos", {}, "scale", {"mixed_size": 20, "resize": "scale"}),
        ("photos", {}, "crop", {"mixed_size": 20, "resize": "crop"}),
        ("photos", {"image_size": 64}, "crop", {"image_size": 64, "resize": "scale"}),
        ("photos", {"image_size": 64}, "squash", {"image_size": 64, "resize": "squash"}),
        ("photos", {"resize": "squash"}, "scale", {"mixed_size": 20, "resize": "squash"}),
        ("tests.own_parts:stripes", {"image_size": 4}, "crop", {"image_size": 4}),
        ("digits", {}, "scale", {}),
    ],
)
def test_readers_of_files_are_told_how_to_make_squares(tmp_path: Path, monkeypatch, dataset, given, resize, wanted):
    """Options of other sets are left alone: those of the same names may mean anything there."""
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    assert reader_options(dataset, given, InputSection(image_size=20, resize=resize)) == wanted


@pytest.mark.filterwarnings("ignore:images differ in size")
@pytest.mark.parametrize("resize", ["scale", "squash", "crop"])
@pytest.mark.parametrize("sizes", [SIZES, ((40, 60),)])
@pytest.mark.parametrize("given", [{}, {"image_size": 34}])
def test_a_file_is_to_the_model_what_it_was_in_training(tmp_path: Path, resize, sizes, given):
    """Of several sizes or of one, also where the reader makes squares of 34 of which the network gets 30."""
    files = write_photographs(tmp_path / "photos", sizes=sizes)
    section = DataSection(dataset=str(tmp_path / "photos"), dataset_options=given)
    for shape in (InputSection, EpisodeInputSection):
        read_as = shape(image_size=30, resize=resize)
        test = (split := load_split(section, shape=read_as)).test.normalised_like(split.train)
        found = prepare_images([files[number] for number in split.indices["test"]], inputs_of_run(test, read_as))
        assert torch.equal(found, test.pixels(torch.arange(len(test))))


@pytest.mark.filterwarnings("ignore:images differ in size")
def test_photographs_keep_their_proportions_unless_they_are_squashed(tmp_path: Path):
    """A wide one is torchvision's `Resize` and `CenterCrop` of it; both are by Lanczos."""
    files = write_photographs(tmp_path / "photos")
    section = DataSection(dataset=str(tmp_path / "photos"))
    ways = {
        "scale": Compose([Resize(30, InterpolationMode.LANCZOS), CenterCrop(30)]),
        "squash": Resize((30, 30), InterpolationMode.LANCZOS),
    }
    for resize, way in ways.items():
        split = load_split(section, shape=InputSection(image_size=30, resize=resize))
        for image, number in zip(split.train.images, split.indices["train"], strict=True):
            assert np.array_equal(image.permute(1, 2, 0), way(Image.open(files[number])))


def test_a_stored_model_reads_files_as_its_images_were_read():
    read = Provenance(read_size=64, read_resize="squash")
    images = ImageSet("x", torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1).long(), ("a",), provenance=read)
    inputs = inputs_of_run(images, InputSection(resize="crop"))
    assert (inputs.resize, inputs.read_size, inputs.read_resize) == ("crop", 64, "squash")


@pytest.mark.parametrize("normalise", ["standardise", "unit", "none", True, False])
def test_pixels_as_networks_see_them(tmp_path: Path, normalise: str | bool):
    """Two channels would be no image, so three: mean and deviation of each, of the training images alone."""
    drawn = np.random.default_rng(0).integers(0, 200, (20, 4, 4, 3), np.uint8)
    np.savez(tmp_path / "mine.npz", x=drawn, y=np.repeat([0, 1], 10))
    section = DataSection(dataset=str(tmp_path / "mine.npz"))
    shape = (InputSection if isinstance(normalise, bool) else EpisodeInputSection)(normalise=normalise)
    split = load_split(section, shape=shape)
    train, test = (part.images.numpy().astype(np.float64) for part in (split.train, split.test))
    mean, std = train.mean((0, 2, 3), keepdims=True), train.std((0, 2, 3), keepdims=True)
    expected = {"standardise": (test - mean) / std, "unit": test / 255, "none": test}
    expected |= {True: expected["standardise"], False: expected["unit"]}
    found = split.test.pixels(torch.arange(len(test))).numpy()
    np.testing.assert_allclose(found, expected[normalise], rtol=1e-4, atol=1e-5)


def resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassifySpec:
    """A classify run on images of one's own that was stopped after its first epoch."""
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    drawn = np.random.default_rng(0).integers(0, 255, (24, 28, 28), np.uint8)
    np.savez(tmp_path / "mine.npz", x=drawn, y=np.repeat([0, 1], 12))
    spec = ClassifySpec(
        task="tiny",
        data={"dataset": str(tmp_path / "mine.npz")},
        network={"backbone": "mnist_conv", "activation": "relu"},
        training={"epochs": 3},
    )
    with pytest.raises(KeyboardInterrupt):
        arelu_meta.run(spec, bar=stopped_after_one)
    return spec


@contextmanager
def stopped_after_one(_description: str, _total: int):
    def advance(_note: str) -> None:
        raise KeyboardInterrupt

    yield advance


@pytest.mark.usefixtures("store", "no_model")
@MLFLOW_WARNINGS
def test_a_run_is_not_resumed_on_other_images_nor_beside_its_living_self(tmp_path: Path, monkeypatch):
    spec = resumable(tmp_path, monkeypatch)
    pixels = np.load(tmp_path / "mine.npz")["x"]
    holder = RunFolder(spec)
    reading, writing = os.pipe()
    living = os.fork()
    if not living:
        with holder.locked():
            os.write(writing, b"x")
            signal.pause()
    os.read(reading, 1)
    with pytest.raises(RunError, match=rf"is in use by process {living} on"):
        arelu_meta.run(spec, Execution(resume=True))
    os.kill(living, signal.SIGKILL)
    os.waitpid(living, 0)
    pixels[0, 0, 0] ^= 1
    np.savez(tmp_path / "mine.npz", x=pixels, y=np.repeat([0, 1], 12))
    with pytest.raises(InputError, match=r"the images are not those that the checkpoint in .*tiny-.* was trained on"):
        arelu_meta.run(spec, Execution(resume=True))
    pixels[0, 0, 0] ^= 1
    np.savez(tmp_path / "mine.npz", x=pixels, y=np.repeat([0, 1], 12))
    stopped = holder.load()["run_id"]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert holder.load()["threads"] == 1
    with threads(2):  # as many as the cores of the machine it is resumed on
        assert arelu_meta.run(spec, Execution(resume=True)).run_id == stopped
    tags = get_run(stopped).data.tags
    assert (tags["exec.threads"], tags["waiting"]) == ("1", waiting_policy())


def test_real_targets_are_for_regression_alone():
    section = DataSection(dataset="sinusoid", split="published")
    with pytest.raises(InputError, match="sinusoid has real targets, and this kind of run has no use for them"):
        load_split(section)
    assert load_split(section, real_targets=True).train.targets is not None


def test_sets_of_torchvision_are_read_at_the_size_that_images_are_to_have():
    """And a stored model reads files in the same way; an option of the reader comes first."""
    section = DataSection(dataset="torchvision:FakeData", dataset_options={"size": 30, "num_classes": 2})
    shape = EpisodeInputSection(image_size=20)
    split = load_split(section, shape=shape)
    assert split.train.image_size == (20, 20)
    assert inputs_of_run(split.train, shape).read_size == 20
    given = {**section.dataset_options, "image_size": 24}
    assert reader_options(section.dataset, given, shape) == {**given, "resize": "scale"}
    assert reader_options(section.dataset, {}, shape) == {"image_size": 20, "resize": "scale"}


@pytest.mark.parametrize(
    ("keep", "free", "stays"),
    [("auto", 1000, True), ("auto", 4000, False), ("cpu", 4000, True), ("device", 0, False)],
)
def test_images_that_do_not_fit_the_device_stay_in_host_memory(monkeypatch, keep: str, free: int, stays: bool):
    """20 images of 1x8x8 are 1,280 bytes, for which half of the free memory is meant; `meta` stands for a GPU."""
    images = ImageSet("x", torch.zeros(20, 1, 8, 8, dtype=torch.uint8), torch.arange(20) % 2, ("a", "b"))
    monkeypatch.setattr(session, "free_memory", lambda _device: free)
    split = session.to_device(splits.by_image(images), torch.device("meta"), Execution(keep=keep))
    for part in (split.train, split.validation, split.test):
        assert part.device.type == "meta"
        assert isinstance(part.images, ImageRows) == stays
        if isinstance(part.images, ImageRows):
            assert isinstance(part.images.source, HostImages)
            assert part.images.source.images.device.type == "cpu"
