import re

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta.data.describe import OUTLINE, contact_sheet, describe, write_contact_sheet
from arelu_meta.data.imageset import ImageSet, Provenance
from arelu_meta.errors import InputError


def lines_of(text):
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines())


@pytest.fixture
def patients():
    return ImageSet(
        "patients",
        torch.zeros(6, 2, 8, 4, dtype=torch.uint8),
        torch.tensor([0, 0, 0, 0, 1, 2]),
        ("a", "b", "c"),
        subsets={"train": torch.arange(4), "test": torch.arange(4, 6)},
        masks=torch.cat([torch.ones(1, 1, 8, 4), torch.zeros(5, 1, 8, 4)]).to(torch.uint8),
        groups=torch.tensor([0, 0, 0, 0, 1, 1]),
        group_names=("one", "two"),
        provenance=Provenance(source="a drawer", verified=False, files={"x.bin": "abc"}),
    )


def test_describe(patients):
    """Counts are 4, 1, 1: median 1. One mask of six is full: 1/6 = 16.67 % of the pixels. 6*2*8*4 bytes."""
    told = lines_of(describe(patients))
    assert told["images"] == "6 of 2x8x4, 0.0 MB"
    assert told["classes"] == "3: a, b, c"
    assert told["per class"] == "min 1, median 1, max 4"
    assert told["subset train"] == "4 images of 1 classes"
    assert told["subset test"] == "2 images of 2 classes"
    assert told["groups"] == "2: one, two"
    assert told["masks"] == "1 of 6 not empty, 16.67% of the pixels"
    assert told["digest"] == patients.digest
    assert told["source"] == "a drawer"
    assert told["verified"].startswith("no")
    assert told["file x.bin"] == "abc"


# Contact sheet


def plain(values, labels, classes, size=28, **more):
    """A set whose image i is filled with one colour (value, 0, 200), which no letter of a title has."""
    colours = torch.tensor([(value, 0, 200) for value in values], dtype=torch.uint8)
    images = colours[:, :, None, None].expand(-1, -1, size, size).contiguous()
    return ImageSet("plain", images, torch.tensor(labels), tuple(classes), **more)


def values_in(sheet, box=None):
    return {red for red, green, blue in colours_in(sheet, box) if (green, blue) == (0, 200)}


def colours_in(sheet, box=None):
    pixels = np.asarray(sheet.crop(box) if box else sheet).reshape(-1, 3)
    return {tuple(map(int, pixel)) for pixel in np.unique(pixels, axis=0)}


def test_rows_are_classes_in_order():
    """Two classes, two rows: 28 is enlarged twice to 56, and with the gap a line is 58 high."""
    sheet = contact_sheet(plain([10, 20, 30], [0, 1, 1], "ab"), rows=2)
    assert sheet.height == 2 * 58
    assert values_in(sheet, (0, 0, sheet.width, 58)) == {10}
    assert values_in(sheet, (0, 58, sheet.width, 116)) == {20, 30}


def test_every_image_is_shown_where_there_is_room():
    values = list(range(1, 41))
    sheet = contact_sheet(plain(values, [0] * 20 + [1] * 20, "ab"), rows=4, columns=10)
    assert values_in(sheet) == set(values)


def test_even_steps_from_first_to_last_where_there_is_not():
    """Of 101 classes five rows show 0, 25, 50, 75 and 100; of 101 images of one class five columns show the same."""
    numbers = list(range(101))
    many_classes = plain(numbers, numbers, map(str, numbers))
    assert values_in(contact_sheet(many_classes, rows=5)) == {0, 25, 50, 75, 100}
    one_class = plain(numbers, [0] * 101, "a")
    assert values_in(contact_sheet(one_class, rows=1, columns=5)) == {0, 25, 50, 75, 100}


def test_class_name_is_written_before_its_images():
    quiet = contact_sheet(plain([5], [0], ["i"]))
    loud = contact_sheet(plain([5], [0], ["a much longer name"]))
    assert loud.width > quiet.width + 50
    assert (0, 0, 0) in colours_in(loud)
    assert contact_sheet(plain([5], [0], ["x" * 500])).width < 600


def test_mask_is_an_outline():
    """A square mask of 4x4 in an 8x8 image enlarged 16 times: 64 pixels a side, of which the outer ring is 4 * 63."""
    masks = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    masks[:, :, 2:6, 2:6] = 1
    sheet = contact_sheet(plain([0], [0], "a", size=8, masks=masks))
    red = (np.asarray(sheet) == OUTLINE).all(-1)
    assert red.sum() == 4 * 63
    without = contact_sheet(plain([0], [0], "a", size=8))
    assert OUTLINE not in colours_in(without)


@pytest.mark.parametrize(
    ("channels", "shown"), [(1, (90, 90, 90)), (2, (90, 90, 90)), (3, (90, 91, 92)), (4, (90,) * 3)]
)
def test_any_number_of_channels(channels, shown):
    values = torch.arange(90, 90 + channels, dtype=torch.uint8)
    images = values.view(1, -1, 1, 1).expand(-1, -1, 28, 28)
    sheet = contact_sheet(ImageSet("one", images, torch.tensor([0]), ("a",)))
    assert sheet.getpixel((sheet.width - 30, 28)) == shown


def test_absent_classes_have_no_row():
    assert contact_sheet(plain([1, 2], [0, 2], "abc"), rows=2).height == 2 * 58


def test_written_file_is_the_sheet(tmp_path):
    images = plain([10, 20], [0, 1], "ab")
    write_contact_sheet(images, tmp_path / "sheet")
    with Image.open(tmp_path / "sheet") as read:
        assert read.format == "PNG"
        np.testing.assert_array_equal(np.asarray(read), np.asarray(contact_sheet(images)))


def test_unwritable_place_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match=r"cannot write the contact sheet '.*': No such file or directory; choose"):
        write_contact_sheet(plain([1], [0], "a"), tmp_path / "missing" / "sheet.png")


def test_points_are_described_and_not_drawn():
    """4 x 2 numbers of four bytes, and targets from -1.5 to 2."""
    targets = torch.tensor([[-1.5], [2.0], [0.0], [1.0]])
    points = ImageSet("points", torch.rand(4, 2, 1, 1), torch.tensor([0, 1, 0, 1]), ("f", "g"), targets=targets)
    told = lines_of(describe(points))
    assert told["images"] == "4 of 2x1x1, 0.0 MB"
    assert told["targets"] == "real numbers from -1.5 to 2; classes are functions"
    with pytest.raises(InputError, match="points holds vectors of 2 features; a contact sheet shows images"):
        contact_sheet(points)
