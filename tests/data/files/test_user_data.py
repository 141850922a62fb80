import csv
import os
import sys
import zipfile
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

from arelu_meta import data
from arelu_meta.data.files.user_data import load_user_data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import InputError
from arelu_meta.reading import skipping_broken


def picture(seed, size=(8, 8), channels=3):
    shape = (size[1], size[0], channels) if channels > 1 else (size[1], size[0])
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def assert_one_line(call, *fragments):
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


# Folders of class folders


def test_class_folders(tmp_path):
    for number, name in enumerate(("dog/b.png", "cat/z.png", "dog/a.png")):
        save(tmp_path / "pets" / name, picture(number))
    (tmp_path / "pets" / ".cache").mkdir()
    for name in ("notes.txt", "photo.heic", "Thumbs.db", ".DS_Store"):
        (tmp_path / "pets" / "dog" / name).write_text("")
    left_out = r"not read as images in .*pets: dog/notes.txt, dog/photo.heic \(2 in all\)$"
    with pytest.warns(UserWarning, match=left_out):
        images = data.load(tmp_path / "pets")
    assert (images.name, images.class_names) == ("pets", ("cat", "dog"))
    assert images.labels.tolist() == [0, 1, 1]
    assert images.subsets == {}
    for image, number in zip(images.images, (1, 2, 0), strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), picture(number))


def test_parts_on_top(tmp_path):
    for name in ("train/cat/1.png", "train/dog/1.png", "val/cat/1.png", "test/dog/1.png", "test/emu/1.png"):
        save(tmp_path / name, picture(0))
    images = load_user_data(tmp_path)
    assert images.class_names == ("cat", "dog", "emu")
    named = {
        part: [images.class_names[label] for label in images.labels[index].tolist()]
        for part, index in images.subsets.items()
    }
    assert named == {"train": ["cat", "dog"], "validation": ["cat"], "test": ["dog", "emu"]}


def test_classes_may_be_called_test(tmp_path):
    """Without a folder `train` beside it, `test` is a class like any other."""
    save(tmp_path / "test" / "1.png", picture(0))
    save(tmp_path / "exam" / "1.png", picture(0))
    assert load_user_data(tmp_path).class_names == ("exam", "test")


def test_grey_stays_grey_until_one_is_coloured(tmp_path):
    save(tmp_path / "a" / "1.png", picture(0, channels=1))
    assert load_user_data(tmp_path).images.shape == (1, 1, 8, 8)
    save(tmp_path / "b" / "1.png", picture(1))
    images = load_user_data(tmp_path).images
    assert images.shape == (2, 3, 8, 8)
    assert np.array_equal(images[0, 2].numpy(), picture(0, channels=1))


def test_unequal_sizes(tmp_path):
    save(tmp_path / "a" / "1.png", picture(0, (8, 6)))
    save(tmp_path / "a" / "2.png", picture(0, (10, 9)))
    assert_one_line(lambda: load_user_data(tmp_path), "1.png is 8x6, 2.png is 10x9", "set `image_size`")
    assert load_user_data(tmp_path, image_size=7).images.shape == (2, 3, 7, 7)
    assert data.load(tmp_path, image_size=7).image_size == (7, 7)
    assert_one_line(lambda: data.load(tmp_path, image_size=7, resize="squeeze"), "unknown resize 'squeeze'")


PIL_WAYS = {  # of a picture: to 6 pixels
    "scale": Compose([Resize(6, InterpolationMode.LANCZOS), CenterCrop(6)]),
    "squash": Resize((6, 6), InterpolationMode.LANCZOS),
    "crop": lambda image: image.crop(
        ((image.width - 6) // 2, (image.height - 6) // 2, (image.width + 6) // 2, (image.height + 6) // 2)
    ),
}


@pytest.mark.parametrize("resize", PIL_WAYS)
@pytest.mark.parametrize("option", ["image_size", "mixed_size"])
def test_photographs_of_different_sizes_become_squares(tmp_path, resize, option):
    """By torchvision's transforms, or cut out of even sides by Pillow; a folder of no side goes with all of them."""
    sizes = [(8, 6), (10, 12), (20, 6), (6, 6)]
    for number, size in enumerate(sizes):
        save(tmp_path / "a" / f"{number}.png", picture(number, size))
    with pytest.warns(UserWarning, match="images differ in size") if option == "mixed_size" else nullcontext():
        images = load_user_data(tmp_path, resize=resize, **{option: 6})
    for number, size in enumerate(sizes):
        wanted = np.asarray(PIL_WAYS[resize](Image.fromarray(picture(number, size))))
        assert np.array_equal(images.images[number].permute(1, 2, 0).numpy(), wanted)
    read = images.provenance
    assert (read.read_size, read.read_resize) == (0 if resize == "crop" else 6, resize)


def test_nothing_larger_is_cut_out_of_a_photograph(tmp_path):
    save(tmp_path / "a" / "1.png", picture(0, (8, 6)))
    save(tmp_path / "a" / "2.png", picture(0, (10, 9)))
    assert_one_line(
        lambda: load_user_data(tmp_path, mixed_size=7, resize="crop"), "1.png is smaller than 7x7", "`resize` to scale"
    )


def test_a_size_for_images_that_differ_leaves_equal_ones_as_they_are(tmp_path):
    save(tmp_path / "a" / "1.png", picture(0, (8, 6)))
    equal = load_user_data(tmp_path, mixed_size=5)
    assert (equal.image_size, equal.provenance.read_size) == ((6, 8), 0)
    save(tmp_path / "a" / "2.png", picture(0, (10, 9)))
    with pytest.warns(UserWarning, match=r"\(8x6, 10x9, ...\): the shorter side of each is scaled to 5 pixels and"):
        mixed = load_user_data(tmp_path, mixed_size=5)
    assert (mixed.image_size, mixed.provenance.read_size) == ((5, 5), 5)
    assert torch.equal(mixed.images, load_user_data(tmp_path, image_size=5).images)


def test_a_folder_as_people_have_them(tmp_path):
    """Sizes and modes differ, a photograph lies on its side, and two files are broken."""
    save(tmp_path / "cat" / "colour.png", picture(0))
    Image.fromarray(picture(1, (12, 8))).convert("P").save(tmp_path / "cat" / "palette.png")
    Image.fromarray(np.dstack([picture(2), np.full((8, 8), 99, np.uint8)])).save(tmp_path / "cat" / "alpha.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "dog" / "grey.png", picture(3, channels=1))
    Image.new("RGB", (20, 10)).save(tmp_path / "dog" / "turned.jpg", exif=exif)
    whole = (tmp_path / "cat" / "colour.png").read_bytes()
    (tmp_path / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.warns(UserWarning, match="scaled to 6 pixels and the centre cut out"):
        assert_one_line(
            lambda: load_user_data(tmp_path, mixed_size=6), "cut.png is not a readable image", "`skip_broken`"
        )
    (tmp_path / "dog" / "text.png").write_text("no image")
    with skipping_broken(), pytest.warns(UserWarning, match="left out|scaled to 6") as told:
        images = load_user_data(tmp_path, mixed_size=6)
    assert images.images.shape == (5, 3, 6, 6)
    assert images.counts().tolist() == [3, 2]
    left_out = str(told[0].message)
    assert left_out.startswith("left out, 2 of 7 image files: ")
    assert "cut.png is not a readable image" in left_out
    assert "text.png is not a readable image" in left_out


def test_a_folder_of_broken_files_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_text("no image")
    with skipping_broken():
        assert_one_line(lambda: load_user_data(tmp_path), "none of the 1 image files of", "can be read")


def test_sixteen_bits_are_refused(tmp_path):
    """Pillow would clip them to white."""
    save(tmp_path / "a" / "1.png", np.full((8, 8), 1000, np.uint16))
    assert_one_line(lambda: load_user_data(tmp_path), "1.png has more than 8 bits per channel", "convert it to 8-bit")


def test_empty_folders(tmp_path):
    assert_one_line(lambda: load_user_data(tmp_path), f"{tmp_path} holds no class folders")
    (tmp_path / "cat").mkdir()
    assert_one_line(lambda: load_user_data(tmp_path), "class folder", "cat holds no images (.bmp, .gif")


@pytest.mark.parametrize("keep", [0, 5, 40, -60])
def test_a_truncated_png(tmp_path, keep):
    save(tmp_path / "a" / "1.png", picture(0))
    save(tmp_path / "a" / "2.png", picture(1))
    file = tmp_path / "a" / "2.png"
    file.write_bytes(file.read_bytes()[:keep])
    assert_one_line(lambda: load_user_data(tmp_path), "2.png is not a readable image", "replace or remove it")


# Folders with a CSV of splits


def write_csv(path, *rows, header=("filename", "label", "split")):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


@pytest.mark.parametrize(
    ("text", "found"),
    [("file,label,split\n", "file, label, split"), ("filename;label;split\n", "filename;label;split"), ("", "nothing")],
)
def test_a_csv_with_another_header_is_named(tmp_path, text, found):
    """It was passed over, and the folder blamed for having no class folders."""
    save(tmp_path / "one.png", picture(1))
    (tmp_path / "birds.csv").write_text(text)
    assert_one_line(lambda: load_user_data(tmp_path), f"birds.csv has {found}; it must have filename,label,split")


def test_a_label_is_not_empty(tmp_path):
    save(tmp_path / "one.png", picture(1))
    write_csv(tmp_path / "birds.csv", ("one.png", "", "train"))
    assert_one_line(lambda: load_user_data(tmp_path), "birds.csv line 2 has no label; give the class of 'one.png'")


def test_csv_of_splits(tmp_path):
    save(tmp_path / "one.png", picture(1))
    save(tmp_path / "images" / "two.png", picture(2))
    save(tmp_path / "deep" / "three.png", picture(3))
    rows = [("b", "one.png", "train", 7), ("a", "two.png", "val", 7), ("b", "deep/three.png", "test", 7)]
    write_csv(tmp_path / "birds.csv", *rows, header=("label", "filename", "split", "age"))
    write_csv(tmp_path / "notes.csv", ("x",), header=("anything",))
    images = load_user_data(tmp_path)
    assert images.class_names == ("a", "b")
    assert images.labels.tolist() == [1, 0, 1]
    assert {part: index.tolist() for part, index in images.subsets.items()} == {
        "train": [0],
        "validation": [1],
        "test": [2],
    }
    assert np.array_equal(images.images[2].permute(1, 2, 0).numpy(), picture(3))


@pytest.mark.parametrize(
    ("rows", "fragments"),
    [
        (
            [("1.png", "a", "train"), ("2.png", "a", "test"), ("3.png", "a", "test")],
            ["2.png and 1 more, which is not there"],
        ),
        ([("1.png", "a", "trian")], ["unknown split in", "line 2 'trian'; did you mean 'train'?"]),
        ([("1.png", "a", "train"), ("1.png", "a", "test")], ["line 3 names '1.png' a second time"]),
        ([("1.png", "a")], ["line 2 has 2 fields, not 3"]),
        ([], ["names no images"]),
    ],
)
def test_bad_csv(tmp_path, rows, fragments):
    save(tmp_path / "1.png", picture(0))
    write_csv(tmp_path / "splits.csv", *rows)
    assert_one_line(lambda: load_user_data(tmp_path), "splits.csv", *fragments)


def test_two_tables_are_one_too_many(tmp_path):
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, ("1.png", "a", "train"))
    assert_one_line(lambda: load_user_data(tmp_path), "both a.csv and b.csv list files")


# .npz


X = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 9), dtype=np.uint8)  # (N, C, H, W)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (X, X),
        (X.transpose(0, 2, 3, 1), X),
        (X[:, 0], X[:, :1]),
        (X[:, :1].transpose(0, 2, 3, 1), X[:, :1]),
        ((X / 255).astype(np.float32), X),
        (X.astype(np.int64), X),
    ],
    ids=["NCHW", "NHWC", "NHW", "NHW1", "float", "int64"],
)
def test_npz_layouts(tmp_path, stored, expected):
    np.savez(tmp_path / "mine.npz", x=stored, y=np.array([0, 1, 2, 0, 1, 2]))
    images = data.load(tmp_path / "mine.npz")
    assert np.array_equal(images.images.numpy(), expected)
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert images.subsets == {}


def test_floats_are_rounded(tmp_path):
    """0.5 is 127.5 of 255, which goes to the even 128; 0.999 is 254.7."""
    np.savez(tmp_path / "mine.npz", x=np.array([[[0, 0.5], [0.999, 1]]]), y=[0])
    assert load_user_data(tmp_path / "mine.npz").images.flatten().tolist() == [0, 128, 255, 255]


def test_npz_parts_and_names(tmp_path):
    names = {"y_train": np.array(["ox", "ant"]), "y_val": np.array(["ox"]), "y_test": np.array(["ant", "bee", "ox"])}
    np.savez_compressed(tmp_path / "mine.npz", x_train=X[:2], x_val=X[2:3], x_test=X[3:], **names)
    images = load_user_data(tmp_path / "mine.npz")
    assert images.class_names == ("ant", "bee", "ox")
    assert images.labels.tolist() == [2, 0, 2, 0, 1, 2]
    assert {part: index.tolist() for part, index in images.subsets.items()} == {
        "train": [0, 1],
        "validation": [2],
        "test": [3, 4, 5],
    }
    assert np.array_equal(images.images.numpy(), X)


def test_vectors(tmp_path):
    """Any numbers, as they are: (N, D) becomes D channels of one pixel."""
    rows = np.random.default_rng(0).normal(50, 1000, (6, 4))
    np.savez(tmp_path / "mine.npz", x=rows, y=np.array(["b", "a"] * 3))
    vectors = load_user_data(tmp_path / "mine.npz")
    assert vectors.is_vectors
    assert vectors.labels.tolist() == [1, 0] * 3
    np.testing.assert_allclose(vectors.images.flatten(1), rows, rtol=1e-6)
    assert vectors.targets is None


def test_targets_of_all_parts(tmp_path):
    arrays = {
        f"{what}_{part}": np.arange(3) + 10 * i for i, part in enumerate(("train", "test")) for what in ("y", "targets")
    }
    np.savez(tmp_path / "mine.npz", x_train=np.ones((3, 2)), x_test=np.zeros((3, 2)), **arrays)
    assert load_user_data(tmp_path / "mine.npz").targets.tolist() == [[0], [1], [2], [10], [11], [12]]


@pytest.mark.parametrize(
    ("arrays", "fragment"),
    [
        ({"x": X, "y": np.zeros(5, int)}, "x holds 6 images, but y is (5,)"),
        ({"x": X, "y": np.array([0, 0, 0, 0, 0, -1])}, "label -1 is negative"),
        ({"x": X, "y": np.zeros(6)}, "labels are float64; give whole numbers or strings"),
        ({"x": X * 1.5, "y": np.zeros(6, int)}, "give uint8 or floats in [0, 1]"),
        ({"x": np.full((1, 8, 8), np.nan), "y": np.zeros(1, int)}, "values from nan to nan"),
        ({"x": X.astype(int) - 1, "y": np.zeros(6, int)}, "values from -1 to"),
        ({"x": X[:, :2], "y": np.zeros(6, int)}, "which axis are the channels?"),
        ({"x": X[0, 0, 0], "y": np.zeros(8, int)}, "give (N, H, W), (N, H, W, C) or (N, C, H, W), or vectors (N, D)"),
        (
            {"x": np.array([["a", "b"]]), "y": np.zeros(1, int)},
            "x is <U1 (1, 2); give vectors (N, D) of finite numbers",
        ),
        ({"x": np.full((2, 3), np.inf), "y": np.zeros(2, int)}, "give vectors (N, D) of finite numbers"),
        ({"x": np.zeros((2, 0)), "y": np.zeros(2, int)}, "x is float64 (2, 0); give vectors (N, D)"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3, int)}, "x holds 2 images, but y is (3,)"),
        (
            {"x_train": np.zeros((2, 3)), "y_train": [0, 1], "x_test": np.zeros((2, 4)), "y_test": [0, 1]},
            "x_test is (2, 4, 1, 1), but the first (2, 3, 1, 1); make sizes equal",
        ),
        (
            {"x": np.zeros((2, 3)), "y": [0, 1], "targets": np.zeros(3)},
            "targets are float64 (3,); give one finite number",
        ),
        ({"x": np.zeros((2, 3)), "y": [0, 1], "targets": [0, np.nan]}, "give one finite number for each"),
        ({"images": X, "y": np.zeros(6, int)}, "mine holds images, y; give x and y, or x_train"),
        ({"x_test": X, "y_test": np.zeros(6, int)}, "give x and y, or x_train"),
    ],
)
def test_bad_npz(tmp_path, arrays, fragment):
    np.savez(tmp_path / "mine.npz", **arrays)
    assert_one_line(lambda: load_user_data(tmp_path / "mine.npz"), fragment)


@pytest.mark.parametrize("keep", [0, 10, 500, -10])
def test_a_truncated_npz(tmp_path, keep):
    np.savez_compressed(tmp_path / "mine.npz", x=X, y=np.zeros(6, int))
    file = tmp_path / "mine.npz"
    file.write_bytes(file.read_bytes()[:keep])
    assert_one_line(lambda: load_user_data(file), "mine.npz is not a readable .npz", "write it anew")


def test_an_npy_that_is_called_npz(tmp_path):
    np.save(tmp_path / "mine.npy", X)
    (tmp_path / "mine.npy").rename(tmp_path / "mine.npz")
    assert_one_line(lambda: load_user_data(tmp_path / "mine.npz"), "mine.npz is not a readable .npz")


def test_a_damaged_array_in_an_npz(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, x=X, y=np.zeros(6, int))
    with zipfile.ZipFile(file) as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", content[:200])
        archive.writestr("y.npy", content[:20])
    assert_one_line(lambda: load_user_data(file), "mine.npz is not a readable .npz")


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_an_npz_with_code_in_it_leaves_no_trace(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.array([Runs(tmp_path / "trace")], dtype=object), y=np.zeros(1, int))
    assert_one_line(lambda: load_user_data(tmp_path / "mine.npz"), "not a readable .npz of plain arrays")
    assert not (tmp_path / "trace").exists()


# package.module:function


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of the user's own and make it importable."""

    def write(text):
        (tmp_path / "my_images.py").write_text(
            f"import numpy as np, torch\nfrom torch.utils.data import Dataset\n{text}"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "my_images", raising=False)

    yield write
    sys.modules.pop("my_images", None)


def test_function_that_returns_arrays(module):
    module("def load():\n    return np.zeros((2, 8, 8), np.uint8), [4, 7]")
    images = data.load("my_images:load")
    assert images.images.shape == (2, 1, 8, 8)
    assert images.class_names == ("4", "7")
    assert images.provenance.source == "my_images:load"


def test_function_that_returns_tensors_by_part(module):
    module("def load():\n    x, y = torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 0])\n"
           "    return {'x_train': x, 'y_train': y, 'x_test': x, 'y_test': y}")  # fmt: skip
    images = data.load("my_images:load")
    assert len(images) == 6
    assert images.subsets["test"].tolist() == [3, 4, 5]


DATASET = """
class Own(Dataset):
    classes = ["ant", "bee", "cow"]
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return {image}, 2 - i
def load():
    return Own()
"""


@pytest.mark.parametrize(
    "image",
    [
        "torch.full((3, 8, 9), (i + 1) / 255)",
        "torch.full((3, 8, 9), i + 1, dtype=torch.uint8)",
        "np.full((8, 9, 3), i + 1, np.uint8)",
        "__import__('PIL.Image').Image.new('RGB', (9, 8), (i + 1, i + 1, i + 1))",
    ],
)
def test_function_that_returns_a_dataset(module, image):
    module(DATASET.format(image=image))
    images = data.load("my_images:load")
    assert images.images.shape == (2, 3, 8, 9)
    assert images.images.flatten(1).unique(dim=1).tolist() == [[1], [2]]
    assert [images.class_names[label] for label in images.labels.tolist()] == ["cow", "bee"]


def test_a_dataset_of_unequal_sizes(module):
    module(DATASET.format(image="torch.zeros(3, 8, 8 + i)"))
    assert_one_line(lambda: data.load("my_images:load"), "(3, 8, 8) and (3, 8, 9)", "transform")


def test_a_label_without_a_name(module):
    module(DATASET.format(image="torch.zeros(3, 8, 8)").replace('"ant", "bee", "cow"', '"ant", "bee"'))
    assert_one_line(lambda: data.load("my_images:load"), "label 2 is outside 0..1")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("load = 3", "my_images:load is a int, not a class or a function"),
        ("def load():\n    return 3", "my_images:load returned a int; return (x, y)"),
        ("def laod():\n    return 3", "unknown attribute of my_images 'load'; did you mean 'laod'?"),
        ("class D(Dataset):\n    def __len__(self): return 0\n    def __getitem__(self, i): ...\nload = D", "is empty"),
    ],
)
def test_bad_functions(module, text, fragment):
    module(text)
    assert_one_line(lambda: data.load("my_images:load"), fragment)


# What a name means


def test_a_registered_name_wins_over_a_folder(tmp_path, monkeypatch):
    save(tmp_path / "digits" / "a" / "1.png", picture(0))
    monkeypatch.chdir(tmp_path)
    assert len(data.load("digits")) == 1797
    assert len(data.load("./digits")) == 1


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("mnits", "unknown dataset 'mnits'; did you mean 'mnist'?"),
        ("some/where", "no file or folder 'some/where'; check the path"),
        ("birds.npz", "no file or folder 'birds.npz'"),
        ("no_such_module:load", "cannot import 'no_such_module'"),
    ],
)
def test_unknown_names(name, fragment):
    assert_one_line(lambda: data.load(name), fragment)


def test_options_that_do_not_fit(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=np.zeros(6, int))
    (tmp_path / "mine.txt").write_text("")
    assert_one_line(
        lambda: data.load(tmp_path / "mine.npz", image_size=8), "image_size= resizes the image files of a folder"
    )
    assert_one_line(lambda: data.load(tmp_path, image_size=0), "image_size must be at least 1, not 0")
    assert_one_line(lambda: data.load(tmp_path, imagesize=8), "unknown option", "did you mean 'image_size'?")
    assert_one_line(lambda: data.load("digits", rotations=True), "unknown option of digits: 'rotations'")
    assert_one_line(lambda: data.load(tmp_path / "mine.txt"), "mine.txt is not an .npz")


def test_every_registered_set_names_a_reader_that_exists():
    entries = {entry.name: entry for entry in data.entries()}
    published = ["mnist", "fashion_mnist", "svhn", "cifar10", "cifar100", "omniglot", "lgg"]
    assert set(published) <= set(entries)
    for name in published:
        assert callable(entries[name].load())
        assert not entries[name].bundled


def test_a_function_may_return_an_image_set(module):
    module(
        "from arelu_meta.data.imageset import ImageSet\n"
        "x, y = torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([0])\n"
        "def load():\n    return ImageSet('mine', x, y, ('a',))"
    )
    assert isinstance(data.load("my_images:load"), ImageSet)
    assert torch.equal(data.load("my_images:load").labels, torch.tensor([0]))


def turned(path, pixels, orientation):
    """Save pixels as a camera does that was held otherwise: EXIF says how they are to be turned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif)


def test_images_are_read_as_viewers_show_them(tmp_path):
    """Orientation 6: the first row is the right side; turned back by a quarter, clockwise."""
    stored = picture(0, size=(6, 4))  # 4 rows of 6
    turned(tmp_path / "cat" / "a.png", stored, 6)
    save(tmp_path / "dog" / "b.png", picture(1, size=(4, 6)))
    images = load_user_data(str(tmp_path)).images
    assert images.shape == (2, 3, 6, 4)
    assert (images[0].permute(1, 2, 0).numpy() == np.rot90(stored, -1)).all()


def test_files_of_the_system_are_no_images(tmp_path):
    save(tmp_path / "cat" / "a.png", picture(0))
    save(tmp_path / "dog" / "b.png", picture(1))
    (tmp_path / "cat" / "._a.png").write_bytes(b"resource fork")
    assert len(load_user_data(str(tmp_path))) == 2
