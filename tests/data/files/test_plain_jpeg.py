"""torchvision's decoder of plain JPEG files beside Pillow: the same pixels, and everything else is left to Pillow."""

import os
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from arelu_meta.data.files import image_files, plain_jpeg
from arelu_meta.data.files.image_files import find_shape
from arelu_meta.data.files.plain_jpeg import plain_decoder, read_plain_jpeg
from arelu_meta.errors import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    decoder = plain_jpeg._compared_decoder()
pytestmark = [
    pytest.mark.skipif(decoder is None, reason="torchvision's decoder is missing, or not Pillow's"),
    pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning"),
]


def picture(height: int = 45, width: int = 61, mode: str = "RGB") -> Image.Image:
    random = np.random.default_rng(height * width)
    small = Image.fromarray(random.integers(0, 256, (height // 5 + 1, width // 5 + 1, 3), dtype=np.uint8))
    return small.resize((width, height)).convert(mode)


def jpeg(image: Image.Image, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, "JPEG", **options)  # type: ignore[arg-type]
    return file.getvalue()


def by_pillow(content: bytes) -> NDArray[np.uint8]:
    with Image.open(BytesIO(content)) as image:
        return np.asarray(image).reshape(image.height, image.width, -1)


def fast(path: Path, content: bytes, size: tuple[int, int] = (45, 61)) -> NDArray[np.uint8] | None:
    path.write_bytes(content)
    assert decoder is not None
    return read_plain_jpeg(path, size, decoder)


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (7, 17), (45, 61), (160, 120)])
@pytest.mark.parametrize("quality", [5, 85, 100])
@pytest.mark.parametrize("subsampling", [0, 1, 2, None])
def test_pixels_are_those_of_pillow(tmp_path: Path, size: tuple[int, int], quality: int, subsampling: int | None):
    """4:4:4, 4:2:2, 4:2:0 and grey; also with restart markers, comments and tables of its own."""
    image = picture(*size, mode="L" if subsampling is None else "RGB")
    sampled = {} if subsampling is None else {"subsampling": subsampling}
    for more in ({}, {"optimize": True}, {"restart_marker_blocks": 2}, {"comment": b"of a bee", "dpi": (72, 72)}):
        content = jpeg(image, quality=quality, **sampled, **more)
        found = fast(tmp_path / "a.jpg", content, size)
        assert found is not None
        assert np.array_equal(found, by_pillow(content))


def test_files_with_more_to_them_are_left_to_pillow(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image, png = picture(), BytesIO()
    image.save(png, "PNG")
    others = {
        "turned": jpeg(image, exif=exif),
        "XMP": jpeg(image, xmp=b"<x:xmpmeta/>"),
        "profile": jpeg(image, icc_profile=b"profile"),
        "progressive": jpeg(image, progressive=True),
        "CMYK": jpeg(picture(mode="CMYK")),
        "RGB as it is": jpeg(image, keep_rgb=True),
        "PNG": png.getvalue(),
        "empty": b"",
        "more behind it": jpeg(image) + b"x",
        "another size": jpeg(picture(44, 61)),
    }
    assert {name for name, content in others.items() if fast(tmp_path / "a.jpg", content) is not None} == set()
    assert fast(tmp_path / "a.jpg", jpeg(image)) is not None


def test_what_cannot_be_read_at_all_is_left_to_pillow(tmp_path: Path):
    assert decoder is not None
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing.jpg", "."):
        assert read_plain_jpeg(tmp_path / name, (45, 61), decoder) is None


def test_bounds_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = jpeg(picture(600, 600))  # 8 * 600 * 600 bytes are more than 2 MiB
    assert fast(tmp_path / "a.jpg", content, (600, 600)) is not None
    monkeypatch.setenv("ARELU_META_MOST_MIB", "2")
    assert fast(tmp_path / "a.jpg", content, (600, 600)) is None
    monkeypatch.delenv("ARELU_META_MOST_MIB")
    monkeypatch.setattr(plain_jpeg, "MOST_BYTES", len(content) - 1)
    assert fast(tmp_path / "a.jpg", content, (600, 600)) is None


def test_damaged_files_are_pillows_pixels_or_pillows(tmp_path: Path):
    """One to three bytes changed, anywhere or among the pixels, or a piece missing: 300 files."""
    random, whole = np.random.default_rng(0), jpeg(picture(), quality=80)
    pixels_start, compared = whole.index(b"\xff\xda") + 14, 0
    for number in range(300):
        content = bytearray(whole)
        for _ in range(int(random.integers(1, 4))):
            content[int(random.integers(pixels_start if number % 2 else 0, len(whole) - 2))] = int(random.integers(256))
        if number % 10 == 0:
            del content[int(random.integers(2, len(whole))) : -2]
        found = fast(tmp_path / "a.jpg", bytes(content))
        if found is not None:
            compared += 1
            assert np.array_equal(found, by_pillow(bytes(content)))
    assert compared > 100
    assert fast(tmp_path / "a.jpg", whole[: len(whole) // 2]) is None


def test_a_folder_of_all_kinds_has_pillows_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Turned by EXIF, grey among colours, progressive, PNG; scaled where sizes differ."""
    exif = Image.Exif()
    exif[0x0112] = 6  # the stored picture lies on its side
    picture().save(tmp_path / "a.jpg")
    picture(61, 45).save(tmp_path / "b.jpg", exif=exif)
    picture(mode="L").save(tmp_path / "c.jpg")
    picture().save(tmp_path / "d.jpg", progressive=True)
    picture().save(tmp_path / "e.png")
    paths = sorted(tmp_path.iterdir())
    stamps = [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    fasts, both = [], list[torch.Tensor]()

    def watched(*arguments: object) -> NDArray[np.uint8] | None:
        found = read_plain_jpeg(*arguments)  # type: ignore[arg-type]
        fasts.append(found is not None)
        return found

    monkeypatch.setattr(image_files, "read_plain_jpeg", watched)
    for decode in (decoder, None):
        monkeypatch.setattr(image_files, "plain_decoder", lambda _count, found=decode: found)
        for size in (None, 32):
            both.append(find_shape(paths, stamps, image_size=size).read(torch.arange(5)))
    assert sorted(fasts) == [False] * 8 + [True] * 2  # a and c, where they are read as they are
    assert torch.equal(both[0], both[2])
    assert torch.equal(both[1], both[3])
    assert tuple(both[0].shape) == (5, 3, 45, 61)


@pytest.mark.filterwarnings("error")
def test_a_folder_is_read_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image_files, "plain_decoder", lambda _count: decoder)
    (tmp_path / "a.jpg").write_bytes(jpeg(picture()))
    read = find_shape([tmp_path / "a.jpg"], [(1, 1)]).read(torch.tensor([0]))
    assert np.array_equal(read[0].permute(1, 2, 0).numpy(), by_pillow(jpeg(picture())))


def test_a_damaged_file_of_a_folder_is_pillows_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image_files, "plain_decoder", lambda _count: decoder)
    content = jpeg(picture())
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    files = find_shape([tmp_path / "a.jpg"], [(1, 1)])
    with pytest.raises(InputError, match=r"a.jpg is not a readable image \(.*truncated.*\); replace or remove it"):
        files.read(torch.tensor([0]))


def test_a_decoder_of_other_pixels_is_not_used(monkeypatch: pytest.MonkeyPatch):
    import torchvision.io

    decode = torchvision.io.decode_jpeg
    monkeypatch.setattr(torchvision.io, "decode_jpeg", lambda content: decode(content) ^ 1)
    assert plain_jpeg._compared_decoder.__wrapped__() is None


def test_torchvision_is_imported_for_many_files_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(plain_jpeg.sys.modules, "torchvision.io", raising=False)
    assert plain_decoder(plain_jpeg.WORTH - 1) is None
    assert plain_decoder(plain_jpeg.WORTH) is decoder
