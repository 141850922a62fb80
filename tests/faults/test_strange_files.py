"""Files that are not what they seem: pipes and devices, bombs, links and names that lead out of their folder."""

import gzip
import os
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arelu_meta import data
from arelu_meta.data.__main__ import main as show_main
from arelu_meta.data.files import read_arrays
from arelu_meta.data.files.mat import read_mat
from arelu_meta.data.readers.cifar import read_plain_pickle
from arelu_meta.data.readers.mnist import read_idx
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import MOST_SEEDS, seed_numbers
from arelu_meta.pretrained.networks import find_model
from arelu_meta.pretrained.weights import read_weights
from arelu_meta.reading import MOST_MIB, following_links, skipping_broken
from arelu_meta.store.models import open_model
from tests.faults.specimens import SPECIMENS

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "idx": ("x", lambda path: read_idx(path, dims=1)),
    "gz": ("x.gz", lambda path: read_idx(path, dims=1)),
    "mat": ("x.mat", lambda path: read_mat(path, ["X"])),
    "pickle": ("x", read_plain_pickle),
    "npz": ("x.npz", read_arrays),
    "pth": ("x.pth", lambda path: read_weights(str(path), model=find_model("resnet18"))),
    "safetensors": ("x.safetensors", lambda path: read_weights(str(path), model=find_model("resnet18"))),
    "model": ("weights.safetensors", lambda path: open_model(path.parent)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", ["pipe", "device", "empty", "text"])
def test_what_is_no_such_file_is_one_line_at_once(tmp_path: Path, reader: str, what: str):
    name, read = READERS[reader]
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"" if what == "empty" else b"neither this nor that\n" * 20)
    with pytest.raises(InputError) as raised:
        read(path)
    assert "\n" not in str(raised.value)
    assert name.partition(".")[0] in str(raised.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_with_a_hole_takes_neither_memory_nor_time(tmp_path: Path, monkeypatch, reader: str):
    """6 GiB of zeros that take no room on the disk; a packed one is whole, and has them behind its end."""
    monkeypatch.delenv(MOST_MIB, raising=False)
    name, read = READERS[reader]
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 1)) + struct.pack(">I", 3) + b"abc") if reader == "gz" else b"")
    os.truncate(path, 6 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as raised:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(raised.value)


def test_every_command_can_be_told_what_a_file_may_unpack_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """3 MiB of images where 2 are allowed, then 3; the variable is afterwards what it was before."""
    monkeypatch.setenv(MOST_MIB, "2")
    monkeypatch.chdir(tmp_path)
    np.savez_compressed("set.npz", x=np.zeros((3, 1024, 1024, 1), np.uint8), y=np.array([0, 1, 1]))
    assert show_main(["show", "set.npz"]) == 2
    assert "set.npz takes 3 MiB unpacked, more than 2 MiB" in capsys.readouterr().err
    assert show_main(["show", "set.npz", "--unpack-limit", "4"]) == 0
    assert os.environ[MOST_MIB] == "2"
    assert show_main(["show", "set.npz", "--unpack-limit", "many"]) == 2
    assert "'many' is not a whole number of MiB" in capsys.readouterr().err


def test_a_packed_file_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """4 GiB in its head and in fact nothing behind it; an .npz beyond the bound, or whose arrays claim 3 GiB."""
    monkeypatch.delenv(MOST_MIB, raising=False)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 1)) + struct.pack(">I", 0xFFFFFFFF)))
    with pytest.raises(InputError, match=r"takes 4095 MiB unpacked, more than 512 MiB; if that is meant, set ARELU_M"):
        read_idx(path, dims=1)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(3 << 20, np.uint8))
    assert read_arrays(tmp_path / "x.npz")["x"].shape == (3 << 20,)
    monkeypatch.setenv(MOST_MIB, "2")
    with pytest.raises(InputError, match=r"x.npz takes 3 MiB unpacked, more than 2 MiB"):
        read_arrays(tmp_path / "x.npz")
    head = (
        b"\x93NUMPY\1\0v\0" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (3221225472,), }".ljust(117) + b"\n"
    )
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("x.npy", head)
    with pytest.raises(InputError, match=r"x.npy is not the uint8 array that it says"):
        read_arrays(tmp_path / "y.npz")


def images(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(path)


def test_a_picture_that_is_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Pillow hands PostScript to Ghostscript, whatever the file is called; a stand-in would leave a trace."""
    images(tmp_path, "set/a/0.png", "set/b/0.png")
    (tmp_path / "set/b/0.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    )
    stand_in = tmp_path / "bin" / "gs"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'owned')!r}, 'w')\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=os.pathsep)
    with pytest.raises(InputError, match=r"0.png is not a readable image .*; replace or remove it"):
        data.load(str(tmp_path / "set"))
    assert not (tmp_path / "owned").exists()


def test_a_small_file_of_a_large_picture(tmp_path: Path):
    images(tmp_path, "set/a/0.png", "set/b/0.png")
    head = (tmp_path / "set/a/0.png").read_bytes()
    (tmp_path / "set/a/0.png").write_bytes(head[:16] + struct.pack(">II", 12000, 12000) + head[24:])
    with pytest.raises(InputError, match=r"0.png (takes 1098 MiB to decode|is not a readable image)"):
        data.load(str(tmp_path / "set"))


@pytest.mark.parametrize("name", ["../outside.png", "ABSOLUTE", "link.png"])
def test_a_csv_stays_in_its_folder(tmp_path: Path, name: str):
    images(tmp_path, "set/0.png", "set/1.png", "outside.png")
    (tmp_path / "set" / "link.png").symlink_to("../outside.png")
    name = str(tmp_path / "outside.png") if name == "ABSOLUTE" else name
    lines = ["filename,label,split", "0.png,a,train", "1.png,b,train", f"{name},a,test"]
    (tmp_path / "set" / "all.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"leads out of .*set; move the file there, or allow it with `follow_links`"):
        data.load(str(tmp_path / "set"))
    with following_links():
        assert len(data.load(str(tmp_path / "set"))) == 3


@pytest.mark.parametrize("other", ["./0.png", "sub/../0.png", "hard.png", "link.png"])
def test_one_image_in_train_and_test_by_two_names(tmp_path: Path, other: str):
    images(tmp_path, "set/0.png", "set/1.png", "set/sub/2.png")
    os.link(tmp_path / "set/0.png", tmp_path / "set/hard.png")
    (tmp_path / "set/link.png").symlink_to("0.png")
    (tmp_path / "set/all.csv").write_text(f"filename,label,split\n0.png,a,train\n1.png,b,train\n{other},a,test\n")
    with pytest.raises(InputError, match=r"0.png in train and .* in test are one file; an image is in one split only"):
        data.load(str(tmp_path / "set"))


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_what_is_called_an_image_and_is_no_file_is_not_passed_over(tmp_path: Path, what: str):
    images(tmp_path, "set/a/0.png", "set/b/0.png")
    place = tmp_path / "set/a/1.png"
    os.mkfifo(place) if what == "pipe" else place.symlink_to("gone.png")
    why = "is no file" if what == "pipe" else "is a link to gone.png, which is not there"
    with pytest.raises(InputError, match=rf"a/1.png {why}; replace or remove it; or leave such files out by"):
        data.load(str(tmp_path / "set"))
    with skipping_broken(), pytest.warns(UserWarning, match=rf"left out: .*a/1.png {why}"):
        assert len(data.load(str(tmp_path / "set"))) == 2


def test_a_link_out_of_a_class_folder(tmp_path: Path):
    images(tmp_path, "set/a/0.png", "set/b/0.png", "outside.png")
    (tmp_path / "set/a/1.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(InputError, match=r"1.png leads out of"):
        data.load(str(tmp_path / "set"))


@pytest.mark.parametrize(
    ("specimen", "name"),
    [
        ("csv", "set/all.csv"),
        *(("few_shot", f"model/{name}") for name in ("few_shot.json", "weights.safetensors")),
        *(("network", name) for name in ("model.pt2", "weights.safetensors")),
    ],
)
def test_files_of_a_set_or_a_model_that_are_links_out_of_it(tmp_path: Path, specimen: str, name: str):
    """Whoever hands on what was made of it would hand on a file of the reader's own."""
    made = SPECIMENS[specimen]()
    for each, content in made.files.items():
        path = tmp_path / "folder" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    place = tmp_path / "folder" / name
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match=rf"{place.name} leads out of .*; move the file there, or allow it with"):
        made.read(tmp_path / "folder")
    with following_links():
        made.read(tmp_path / "folder")


def test_more_seeds_than_anyone_runs():
    with pytest.raises(InputError, match="are more than 100,000; name fewer"):
        seed_numbers("0-99999999999")
    assert len(seed_numbers(f"0-{MOST_SEEDS - 1}")) == MOST_SEEDS
