"""Images in every form they are sent in: the same pixels for the network, or one line that says what to send."""

import base64
from dataclasses import replace
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as vision

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import Inputs, fit_images, from_values, inputs_of
from arelu_meta.data.raw_images import prepare_images
from arelu_meta.errors import InputError

COLOUR = Inputs(3, 8, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.1))
GREY = Inputs(1, 8, mean=(0.5,), std=(0.25,))


def pixels(channels: int = 3, height: int = 8, width: int = 8) -> np.ndarray:
    """Three images, (3, C, H, W) uint8."""
    return np.random.default_rng(0).integers(0, 256, (3, channels, height, width), np.uint8)


def by_hand(images: np.ndarray, inputs: Inputs) -> np.ndarray:
    """Bytes over 255, less the mean, over the deviation, channel by channel, in float64."""
    unit = images.astype(np.float64) / 255
    return np.stack([(unit[:, c] - inputs.mean[c]) / inputs.std[c] for c in range(inputs.channels)], axis=1)


def png(image: np.ndarray, kind: str = "PNG") -> bytes:
    """The file of an image (C, H, W)."""
    written = BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(written, kind)
    return written.getvalue()


def base64_of(file: bytes) -> str:
    return base64.b64encode(file).decode()


FORMS = {
    "uint8": lambda x: x,
    "float32": lambda x: (x / 255).astype(np.float32),
    "float64": lambda x: x / 255,
    "int64": lambda x: x.astype(np.int64),
    "uint16": lambda x: x.astype(np.uint16),
    "uint64": lambda x: x.astype(np.uint64),
    "tensor": torch.from_numpy,
    "channels last": lambda x: x.transpose(0, 2, 3, 1),
    "nested lists of whole numbers": lambda x: x.tolist(),
    "nested lists of floats": lambda x: (x / 255).tolist(),
    "list of arrays": list,
    "list of tensors": lambda x: [torch.from_numpy(image) for image in x],
    "files": lambda x: [png(image) for image in x],
    "base64": lambda x: [base64_of(png(image)) for image in x],
    "tuple of files": lambda x: tuple(png(image) for image in x),
    "array of files": lambda x: np.array([png(image) for image in x], dtype=object),
    "array of base64": lambda x: np.array([base64_of(png(image)) for image in x]),
    "table of files": lambda x: pd.DataFrame({"image": [png(image) for image in x]}),
    "table of base64": lambda x: pd.DataFrame({"image": [base64_of(png(image)) for image in x]}),
    "table of arrays": lambda x: pd.DataFrame({"image": list(x)}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("inputs", [COLOUR, GREY], ids=["colour", "grey"])
def test_every_form_gives_the_same_pixels(form, inputs):
    images = pixels(inputs.channels)
    found = prepare_images(form(images), inputs)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), by_hand(images, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x.transpose(1, 2, 0), png, lambda x: base64_of(png(x))])
def test_one_image_by_itself_is_a_batch_of_one(form):
    image = pixels()[0]
    np.testing.assert_allclose(prepare_images(form(image), COLOUR), by_hand(image[None], COLOUR), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nothing", [[], pd.DataFrame({"image": []}), np.zeros((0, 1, 8, 8))], ids=str)
def test_no_images_are_no_pixels(nothing):
    assert prepare_images(nothing, GREY).shape == (0, 1, 8, 8)


def test_three_images_without_channels_are_not_taken_for_one_in_colour():
    three = pixels(3)[0]
    with pytest.raises(
        InputError, match=r"images are \(3, 8, 8\): three grey ones, or one in colour\? give \(3, 1, 8, 8"
    ):
        prepare_images(three, GREY)
    assert prepare_images(three[None], GREY).shape == (1, 1, 8, 8)
    assert prepare_images(pixels(3, 12, 12)[0], GREY).shape == (1, 1, 8, 8)


def test_black_and_white_is_0_and_255():
    found = prepare_images(np.array([[[[False, True]]]]), Inputs(1))
    assert found.tolist() == [[[[0.0, 1.0]]]]


@pytest.mark.parametrize(("channels", "resize"), [(1, "scale"), (3, "scale"), (3, "squash"), (3, "crop")])
def test_other_shapes_are_fitted_as_a_run_fits_its_images(channels, resize):
    """A run fits bytes, and bytes it gives: so floats are rounded to them before."""
    raw = pixels(3, 12, 15)
    labels = torch.zeros(3, dtype=torch.int64)
    fitted = fit_images(
        ImageSet("raw", torch.from_numpy(raw), labels, ("a",)), channels=channels, image_size=8, resize=resize
    )
    inputs = Inputs(channels, 8, resize=resize)
    for form in (raw, raw / 255, [png(image) for image in raw]):
        assert torch.equal(prepare_images(form, inputs), fitted.images.float() / 255)


def test_files_are_read_as_the_folder_of_the_training_was(tmp_path):
    """A folder read at 9 pixels, then scaled to 8 by the run: files of 12x15 go the same way."""
    for number, image in enumerate(pixels(3, 12, 15)):
        (tmp_path / "set" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / "a" / f"{number}.png").write_bytes(png(image))
    read = data.load(str(tmp_path / "set"), image_size=9)
    expected = fit_images(read, image_size=8).images.float() / 255
    files = [path.read_bytes() for path in sorted((tmp_path / "set" / "a").iterdir())]
    assert torch.equal(prepare_images(files, Inputs(3, 8, read_size=9)), expected)
    assert not torch.equal(prepare_images(files, Inputs(3, 8)), expected)


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (12, 15)])
def test_files_of_the_networks_own_size_go_the_way_of_the_others(tmp_path, size):
    """A folder read at 9 pixels of which the network gets the middle 8: a file of 8x8 is enlarged before, too."""
    save = tmp_path / "set" / "a" / "1.png"
    save.parent.mkdir(parents=True)
    save.write_bytes(png(pixels(3, *size)[0]))
    read = data.load(str(tmp_path / "set"), image_size=9)
    expected = fit_images(read, image_size=8, resize="crop").images.float() / 255
    assert torch.equal(prepare_images([save], replace(inputs_of(read, resize="crop"), image_size=8)), expected)


@pytest.mark.parametrize("stored", [{}, {"resize": "scale"}])
def test_models_of_earlier_versions_squash_files_as_they_did(stored):
    """Read at 9 pixels by Lanczos, both sides, then scaled to 8, both sides; one of 8x8 was left as it was."""
    inputs = from_values({"channels": 3, "image_size": 8, "read_size": 9, **stored})
    wide, own = pixels(3, 12, 15)[0], pixels(3)[0]
    read = Image.fromarray(wide.transpose(1, 2, 0)).resize((9, 9), Image.Resampling.LANCZOS)
    read = torch.from_numpy(np.array(read)).permute(2, 0, 1)
    expected = vision.resize(read, [8, 8], antialias=True)
    found = prepare_images([png(wide), png(own)], inputs) * 255
    assert (found[0] - expected).abs().max() <= 1
    assert np.array_equal(found[1].round().numpy(), own)


def test_files_of_several_sizes_and_colours():
    files = [png(pixels(3, 20, 10)[0]), png(pixels(1, 5, 9)[0]), png(pixels(3)[0], "BMP")]
    assert prepare_images(files, COLOUR).shape == (3, 3, 8, 8)
    with pytest.raises(InputError, match="images differ in size, and the network takes any; resize them to one size"):
        prepare_images(files, Inputs(3))


def test_sides_that_differ():
    inputs = Inputs(1, sides=(8, 10))
    assert prepare_images(pixels(1, 8, 10), inputs).shape == (3, 1, 8, 10)
    with pytest.raises(InputError, match="images are 10x8; the network takes 8x10, resize them to that"):
        prepare_images(pixels(1, 10, 8), inputs)


WRONG = {
    "too bright": (pixels() / 2.0, r"pixels run from 0 to 127.5; give floats in \[0, 1\], or uint8: 0 to 255"),
    "nan": (np.full((1, 3, 8, 8), np.nan), r"pixels run from nan to nan; give floats in \[0, 1\]"),
    "negative": (pixels().astype(int) - 300, r"pixels run from -\d+ to -\d+; give whole numbers of 0 to 255"),
    "text": (["a cat"], "images 0 is text and no base64; give images"),
    "no image": ([b"a cat"], "images 0 is not a readable image"),
    "16 bits": ([png(np.zeros((1, 8, 8), np.uint16))], "^images 0 has more than 8 bits per channel"),
    "mixed": ([png(pixels()[0]), pixels()[0]], "images 1 is a ndarray among image files; give images"),
    "two columns": (pd.DataFrame({"a": [1], "b": [2]}), "the table has columns a, b; give one column of image files"),
    "rows": (np.zeros((3, 192)), r"images are \(3, 192\); the network takes \(N, 3, 8, 8\), channels first or last"),
    "four channels": (np.zeros((2, 4, 8, 8)), r"images are \(2, 4, 8, 8\); the network takes"),
    "ambiguous": (np.zeros((2, 3, 9, 3)), r"images are \(2, 3, 9, 3\); the network takes"),
    "complex": (pixels() * 1j, "images are complex numbers; give images"),
    "16-bit array": (pixels().astype(np.uint16) * 256, r"pixels run from \d+ to \d{5}; give whole numbers of 0 to 255"),
    "no height": (np.zeros((2, 3, 0, 8)), r"images are \(2, 3, 0, 8\), which is no pixel at all; give images"),
    "ragged": ([[1, 2], [3]], "images: this list is no array of numbers; give images"),
    "nothing of the kind": (None, "images: this NoneType is no array of numbers; give images"),
}


@pytest.mark.parametrize(("images", "message"), WRONG.values(), ids=WRONG)
def test_wrong_images_are_one_line(images, message):
    with pytest.raises(InputError, match=message) as raised:
        prepare_images(images, COLOUR)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


VECTORS = Inputs(3, 1, mean=(1.0, 2.0, 3.0), std=(0.5, 1.0, 2.0), vectors=True)


@pytest.mark.parametrize("kind", [list, np.asarray, torch.tensor, lambda rows: torch.tensor(rows)[:, :, None, None]])
def test_vectors_are_normalised_by_feature(kind):
    rows = [[1.0, 2.0, 3.0], [-9.0, 4.0, 103.0]]
    assert prepare_images(kind(rows), VECTORS).flatten(1).tolist() == [[0, 0, 0], [-20, 2, 50]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0]], r"images are \(1, 2\); the network takes vectors \(N, 3\)"),
        ([1.0, 2.0, 3.0], r"images are \(3,\); the network takes vectors \(N, 3\)"),
        ([["a", "b", "c"]], "no array of numbers"),
        ([[1.0, float("nan"), 2.0]], "not finite"),
    ],
)
def test_wrong_vectors_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        prepare_images(rows, VECTORS)
