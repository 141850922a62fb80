"""Whatever is in the place of a file: one line with its name, soon, and without taking memory."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest

from arelu_meta import reading
from arelu_meta.errors import InputError


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "folder", "device"]
)
def test_only_regular_files_are_read(tmp_path: Path, make):
    make(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"x.json.* no regular file|x.json: Is a directory"):
        reading.read_text(tmp_path / "x.json")


def test_a_text_is_bounded_and_utf_8(tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a": 1}')
    assert reading.read_json(path) == {"a": 1}
    with pytest.raises(InputError, match="is larger than 0 MiB"):
        reading.read_text(path, most=7)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"x.json is damaged \(UnicodeDecodeError: .*\); replace the file"):
        reading.read_text(path)
    with pytest.raises(InputError, match=r"cannot read .*gone.json: No such file or directory; restore it"):
        reading.read_text(tmp_path / "gone.json", remedy="restore it")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", "null", '{"a": ' * 100_000], ids=lambda text: text[:3])
def test_what_is_no_json_object_is_one_line(text: str):
    with pytest.raises(InputError, match=r"^x.json (is not JSON \(|holds a )[^\n]*; replace the file$"):
        reading.parse_json(text, "x.json")


def test_every_failure_of_a_parser_is_one_line_and_an_interruption_is_none():
    for error in (
        RecursionError("deep"),
        KeyError("a\nb"),
        RuntimeError("first\nsecond"),
        MemoryError(),
        OSError(5, "I/O"),
    ):
        expected = pytest.raises(InputError, match=r"x\\n.npz [^\n]*; replace|cannot read x\\n.npz: I/O; replace")
        with expected, reading.parsing("x\n.npz"):
            raise error
    with pytest.raises(KeyboardInterrupt), reading.parsing("x"):
        raise KeyboardInterrupt


def test_what_unpacks_out_of_proportion_is_refused(monkeypatch: pytest.MonkeyPatch):
    """512 MiB of whatever file, 16 times a large one, or what the variable says."""
    monkeypatch.delenv(reading.MOST_MIB, raising=False)
    reading.check_size("x", 512 << 20, 10)
    reading.check_size("x", 16 << 30, 1 << 30)
    with pytest.raises(
        InputError, match=r"x takes 513 MiB unpacked, more than 512 MiB; .*set ARELU_META_MOST_MIB to 514"
    ):
        reading.check_size("x", 513 << 20, 10)
    monkeypatch.setenv(reading.MOST_MIB, "514")
    reading.check_size("x", 513 << 20, 10)
    monkeypatch.setenv(reading.MOST_MIB, "much")
    with pytest.raises(InputError, match="ARELU_META_MOST_MIB is 'much'; set it to a whole number"):
        reading.check_size("x", 1, 1)


def test_members_of_a_zip_file_are_added_up_before_they_are_read(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", b"1")
        reading.check_members("x.zip", archive, packed=1)
        archive.infolist()[0].file_size = 1 << 40
        with pytest.raises(InputError, match=r"x.zip takes 1048576 MiB unpacked"):
            reading.check_members("x.zip", archive, packed=1)
        archive.infolist()[0].flag_bits |= 1
        with pytest.raises(InputError, match=r"x.zip is encrypted; unpack it first"):
            reading.check_members("x.zip", archive, packed=1)


def test_a_file_stays_in_its_folder_unless_links_may_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    inside, outside = tmp_path / "inside", tmp_path / "outside.png"
    inside.mkdir()
    outside.write_bytes(b"")
    (inside / "link.png").symlink_to(outside)
    (inside / "own.png").write_bytes(b"")
    (tmp_path / "root").symlink_to(inside)
    reading.check_inside(tmp_path / "root" / "own.png", tmp_path / "root")  # the folder itself may be a link
    for path in (inside / "link.png", inside / "../outside.png", outside):
        with pytest.raises(InputError, match=r"leads out of .*inside; move the file there, or allow it with `follow_l"):
            reading.check_inside(path, inside)
        with reading.following_links():
            reading.check_inside(path, inside)
        with monkeypatch.context() as patch:
            patch.setenv(reading.FOLLOW_LINKS, "1")
            reading.check_inside(path, inside)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_are_followed_without_being_read(protocol: int):
    """2^60 leaves in a few hundred bytes: hashing it would outlast the sun. Plain data of any length passes."""
    plain = {"curve": [(step, (0.5, "x")) for step in range(100)], b"k": (1, [2, {"a": None}]), "set": {1, 2}}
    reading.check_pickle(pickle.dumps(plain, protocol), "x")
    nested: tuple = (1,)
    for _ in range(60):
        nested = (nested, nested)
    content = pickle.dumps([{"a": nested}], protocol)
    assert len(content) < 2000
    with pytest.raises(InputError, match="x nests tuples 21 deep, more than any such file; replace the file"):
        reading.check_pickle(content, "x")
    with pytest.raises(InputError, match="x is not a pickle"):
        reading.check_pickle(pickle.dumps(plain, protocol)[:-10], "x")
