"""Images that do not fit into memory, decoded once to a file: the same pixels, made whole or not at all."""

import errno
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from arelu_meta import data
from arelu_meta.data import splits
from arelu_meta.data.files import image_cache, image_files
from arelu_meta.data.files.image_cache import DecodedImages, cached_files, keep_decoded, remove_cached
from arelu_meta.data.imageset import ImageSet
from arelu_meta.data.inputs import fit_images
from arelu_meta.data.rows import ImageRows
from arelu_meta.errors import InputError
from arelu_meta.runtime.hardware import bounding_images

SIDE, PER_CLASS = 96, 20  # 60 * 3 * 96 * 96 = 1.7 MB, more than 1 MiB


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARELU_META_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for label in ("ant", "bee", "cat"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(PER_CLASS):
            small = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
            small.resize((SIDE, SIDE)).save(tmp_path / "photos" / label / f"{number:02}.jpg")
    return tmp_path / "photos"


def stored(photos: Path, mebibytes: int = 1, **fit: int) -> ImageSet:
    with bounding_images(mebibytes):
        images = data.load(photos)
        return keep_decoded({"all": fit_images(images, **fit) if fit else images})["all"]


def source_of(images: ImageSet) -> DecodedImages:
    assert isinstance(images.images, ImageRows)
    assert isinstance(images.images.source, DecodedImages)
    return images.images.source


def test_a_folder_that_does_not_fit_has_the_pixels_of_one_that_does(photos: Path, cache: Path):
    whole, large = stored(photos, 100), stored(photos)
    assert isinstance(whole.images, torch.Tensor)
    assert source_of(large).path.parent == cache
    assert torch.equal(large.tensor, whole.tensor)
    assert torch.equal(large.labels, whole.labels)
    assert large.class_names == whole.class_names == ("ant", "bee", "cat")


def test_the_file_is_plain_numpy(photos: Path):
    path = source_of(stored(photos)).path
    assert path.name.startswith("photos-")
    assert np.array_equal(np.load(path, mmap_mode="r").transpose(0, 3, 1, 2), stored(photos, 100).tensor.numpy())


def test_images_are_kept_at_the_size_they_are_used_at(photos: Path, cache: Path):
    """60 * 3 * 80 * 80 = 1.2 MB; at 32 pixels a side they are 0.2 MB and stay in memory."""
    whole = fit_images(stored(photos, 100), image_size=80)
    large = stored(photos, image_size=80)
    assert np.load(source_of(large).path, mmap_mode="r").shape == (60, 80, 80, 3)
    assert torch.equal(large.tensor, whole.tensor)
    small = stored(photos, image_size=32)
    assert torch.equal(small.images, fit_images(stored(photos, 100), image_size=32).images)
    assert len(list(cache.glob("*.npy"))) == 1


def test_the_second_use_decodes_nothing(photos: Path, monkeypatch: pytest.MonkeyPatch):
    first = stored(photos)

    def never(*_arguments: object) -> None:
        pytest.fail("an image was decoded again")

    monkeypatch.setattr(image_files.ImageFiles, "read", never)
    again = stored(photos)
    assert again.digest == first.digest
    assert torch.equal(again.tensor, first.tensor)


def test_a_changed_file_is_decoded_anew(photos: Path):
    before = stored(photos)
    black = Image.new("RGB", (SIDE, SIDE))
    black.save(photos / "ant" / "00.jpg")
    os.utime(photos / "ant" / "00.jpg", ns=(1, 1))
    after = stored(photos)
    assert after.digest != before.digest
    assert int(after.images[0].max()) == 0
    assert torch.equal(after.tensor[1:], before.tensor[1:])


def test_parts_share_a_file_with_no_image_that_none_of_them_has(photos: Path):
    with bounding_images(1):
        split = splits.by_image(data.load(photos))
        parts = keep_decoded({name: getattr(split, name) for name in ("train", "test")})
    whole = splits.by_image(stored(photos, 100))
    for name, part in parts.items():
        assert torch.equal(part.tensor, getattr(whole, name).tensor)
    assert np.load(source_of(parts["train"]).path, mmap_mode="r").shape[0] == len(whole.train) + len(whole.test)
    assert source_of(parts["train"]) is source_of(parts["test"])


def test_statistics_of_training_images_are_those_in_memory_and_are_remembered(photos: Path, cache: Path):
    split = splits.by_image(stored(photos))
    whole = splits.by_image(stored(photos, 100))
    assert split.train.mean == whole.train.mean
    assert split.test.std == whole.test.std
    assert len(list(cache.glob("*-histogram.npz"))) == 1


def test_two_threads_read_each_their_own_images(photos: Path):
    source, whole = source_of(stored(photos)), stored(photos, 100).tensor
    orders = [torch.randperm(60, generator=torch.Generator().manual_seed(seed)) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for numbers, images in zip(orders, pool.map(source.read, orders), strict=True):
            assert torch.equal(images, whole[numbers])


def test_the_file_is_not_mapped_into_memory(photos: Path):
    """It would be held whole: with pages of megabytes, a few images touch all of it."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list what a process has mapped")
    source = source_of(stored(photos))
    source.read(torch.arange(60))
    assert source.path.name not in maps.read_text()


def test_a_file_that_is_cut_off_in_use_is_one_line(photos: Path):
    source = source_of(stored(photos))
    os.truncate(source.path, 1000)
    with pytest.raises(InputError, match=r"\.npy was cut off while it was in use; run it again"):
        source.read(torch.tensor([59]))


def test_a_damaged_file_is_made_anew(photos: Path):
    path = source_of(stored(photos)).path
    for content in (b"", b"no array", path.read_bytes()[:-1], path.read_bytes() + b"x"):
        path.write_bytes(content)
        assert torch.equal(stored(photos).tensor, stored(photos, 100).tensor)


def test_an_unreadable_image_is_one_line_and_leaves_nothing(photos: Path, cache: Path):
    whole = (photos / "bee" / "07.jpg").read_bytes()
    (photos / "bee" / "07.jpg").write_bytes(whole[:600])  # its head is whole
    with pytest.raises(InputError, match=r"bee/07.jpg is not a readable image .*; replace or remove it"):
        stored(photos)
    assert [path.name for path in cache.glob("*") if path.suffix != ".lock"] == []


def test_a_full_disk_is_one_line_and_gets_its_space_back(photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(image_cache.os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot keep 0.0 GB of decoded images in .*: No space left on device; free"):
        stored(photos)
    assert [path.name for path in cache.glob("*") if path.suffix != ".lock"] == []


def test_too_little_space_is_known_before(photos: Path, monkeypatch: pytest.MonkeyPatch):
    usage = image_cache.shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(InputError, match=r"0.0 GB are free; free some space, set ARELU_META_CACHE"):
        stored(photos)


def _killed_while_decoding(photos: Path) -> None:
    def slow(*_arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    image_cache.os.replace = slow  # when all is written, but for its name
    stored(photos)


def test_what_a_killed_process_left_is_overwritten(photos: Path, cache: Path):
    process = multiprocessing.get_context("fork").Process(target=_killed_while_decoding, args=(photos,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [path.suffix for path in cache.glob("*.part")] == [".part"]
    assert torch.equal(stored(photos).tensor, stored(photos, 100).tensor)
    assert list(cache.glob("*.part")) == []


def test_two_makers_at_once_make_one_file(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """The second comes while the first is at work: it waits, says so, and decodes nothing."""
    made, begun, make = [], threading.Event(), image_cache._make

    def watched(*arguments: object) -> None:
        made.append(threading.get_ident())
        begun.set()
        waits.wait(1.5)  # longer than the second waits in silence
        make(*arguments)

    waits = threading.Event()
    monkeypatch.setattr(image_cache, "_make", watched)
    results: list[ImageSet] = []
    threads = [threading.Thread(target=lambda: results.append(stored(photos))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert torch.equal(results[0].tensor, results[1].tensor)
    assert "another process decodes the same images" in capsys.readouterr().err


def test_progress_is_shown(photos: Path):
    notes: list[str] = []

    @contextmanager
    def bar(description: str, total: int):
        notes.append(f"{description} {total}")
        yield notes.append

    with bounding_images(1):
        keep_decoded({"all": data.load(photos)}, bar)
    assert notes == ["decode 1", "60 of 60 images"]


def test_files_are_listed_and_removed(photos: Path):
    assert cached_files() == []
    images = stored(photos)
    (file,) = cached_files()
    assert file.size == os.stat(file.path).st_size > 60 * 3 * SIDE * SIDE
    assert remove_cached(unused_days=1) == []
    assert remove_cached() == [file]
    assert cached_files() == []
    assert torch.equal(images.tensor, stored(photos, 100).tensor)  # what is open can be read to its end
