import errno
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from arelu_meta.data.files import download
from arelu_meta.data.files.download import PublishedFile, download_missing, fetch, unpack
from arelu_meta.errors import InputError
from tests.data.mirror import Mirror, serve

PROJECT = Path(__file__).resolve().parents[3]
CONTENT = bytes(range(256)) * 4096  # 1 MiB
HALF = len(CONTENT) // 2


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.delenv("ARELU_META_OFFLINE")  # set by the fixture of conftest.py, which comes first
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def published(*mirrors, content=CONTENT):
    return PublishedFile(
        "set.bin", hashlib.md5(content, usedforsecurity=False).hexdigest(), tuple(mirror.url for mirror in mirrors)
    )


def left_in(folder):
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".lock"))


def test_whole_file_takes_its_name(tmp_path):
    with serve(Mirror(CONTENT)) as mirror:
        path = fetch(published(mirror), tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    assert left_in(path.parent) == ["set.bin"]
    assert mirror.requests == [("/files/set.bin", None)]


def test_a_file_that_is_there_is_not_fetched(tmp_path):
    (tmp_path / "set.bin").write_bytes(b"mine")
    with serve(Mirror(CONTENT)) as mirror:
        fetch(published(mirror), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == b"mine"
    assert mirror.requests == []


def test_a_cut_transfer_goes_on_where_it_was_cut(tmp_path):
    """Half of 1 MiB, then half of what is left, then the rest: the ranges start at 1/2 and 3/4 of it."""
    with serve(Mirror(CONTENT, ("cut", "cut", "whole"))) as mirror:
        fetch(published(mirror), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert [asked for _, asked in mirror.requests] == [None, f"bytes={HALF}-", f"bytes={HALF + HALF // 2}-"]


def test_a_silent_mirror_counts_as_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.3)
    with serve(Mirror(CONTENT, ("stall", "whole"))) as mirror:
        fetch(published(mirror), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert mirror.requests[1][1] == f"bytes={HALF}-"


def test_a_mirror_that_cannot_resume_starts_again(tmp_path):
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1000])
    with serve(Mirror(CONTENT, ("no-range",))) as mirror:
        fetch(published(mirror), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert len(mirror.requests) == 1


def test_a_whole_part_is_placed(tmp_path):
    """Killed after the last byte and before the rename: the mirror has no more (416), the checksum decides."""
    (tmp_path / "set.bin.part").write_bytes(CONTENT)
    with serve(Mirror(CONTENT)) as mirror:
        fetch(published(mirror), tmp_path)
    assert left_in(tmp_path) == ["set.bin"]
    assert mirror.requests == [("/files/set.bin", f"bytes={len(CONTENT)}-")]


@pytest.mark.parametrize("part", [b"x" * 1000, b"x" * (len(CONTENT) + 5)])
def test_a_foreign_part_is_thrown_away(tmp_path, part):
    (tmp_path / "set.bin.part").write_bytes(part)
    with serve(Mirror(CONTENT)) as mirror:
        fetch(published(mirror), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert mirror.requests[-1][1] is None


@pytest.mark.parametrize("fault", [503, 404, "corrupt"])
def test_the_next_mirror_steps_in(tmp_path, fault):
    with serve(Mirror(CONTENT, (fault,))) as bad, serve(Mirror(CONTENT)) as good:
        fetch(published(bad, good), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert (len(bad.requests), len(good.requests)) == (1, 1)


def test_a_mirror_that_is_not_there(tmp_path):
    with serve(Mirror(CONTENT)) as gone:
        pass
    with serve(Mirror(CONTENT)) as good:
        fetch(published(gone, good), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_all_mirrors_fail_in_one_line(tmp_path):
    first, second = Mirror(CONTENT, (503,)), Mirror(CONTENT, ("corrupt",))
    with serve(first), serve(second), pytest.raises(InputError) as caught:
        download_missing("shapes", [published(first, second)], tmp_path, substitute="glyphs")
    message = str(caught.value)
    assert message.startswith("shapes: cannot download set.bin (")
    assert f"{first.url}/set.bin answered 503" in message
    assert f"{second.url}/set.bin sent other bytes than were published" in message
    assert f"put the files into {tmp_path}, or use the bundled 'glyphs'" in message
    assert "\n" not in message
    assert left_in(tmp_path) == []


def test_a_mirror_that_always_cuts_leaves_its_part_for_the_next_time(tmp_path):
    with serve(Mirror(CONTENT, ("cut",))) as mirror:
        with pytest.raises(InputError, match=f"was cut off {download.ATTEMPTS} times"):
            download_missing("shapes", [published(mirror)], tmp_path, substitute="glyphs")
        assert left_in(tmp_path) == ["set.bin.part"]
        had = (tmp_path / "set.bin.part").stat().st_size
        mirror.plan = ["whole"]
        fetch(published(mirror), tmp_path)
    assert mirror.requests[-1][1] == f"bytes={had}-"
    assert left_in(tmp_path) == ["set.bin"]


def test_offline_asks_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("ARELU_META_OFFLINE", "1")
    with serve(Mirror(CONTENT)) as mirror, pytest.raises(InputError, match="ARELU_META_OFFLINE is set"):
        download_missing("shapes", [published(mirror)], tmp_path / "root", substitute="glyphs")
    assert mirror.requests == []
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("url", ["file:///etc", "ftp://127.0.0.1", "/etc"])
def test_only_http(tmp_path, url):
    with pytest.raises(InputError, match="must be http:// or https://"):
        fetch(PublishedFile("passwd", "0" * 32, (url,)), tmp_path)
    assert left_in(tmp_path) == []


class FullDisk(io.FileIO):
    """A file on a disk with room for 100,000 bytes."""

    def write(self, chunk):
        if self.tell() + len(chunk) > 100_000:
            super().write(chunk[: 100_000 - self.tell()])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(chunk)


def test_a_full_disk_while_writing(tmp_path, monkeypatch):
    plain_open = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r": FullDisk(path, "wb") if mode == "wb" else plain_open(path, mode)
    )
    with serve(Mirror(CONTENT)) as mirror, pytest.raises(InputError) as caught:
        fetch(published(mirror), tmp_path)
    message = str(caught.value)
    assert message.startswith(f"cannot write {tmp_path / 'set.bin'}: No space left on device; free some space")
    assert "\n" not in message
    assert left_in(tmp_path) == []


def test_a_full_disk_that_shows_at_the_end(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with serve(Mirror(CONTENT)) as mirror, pytest.raises(InputError, match="No space left on device"):
        fetch(published(mirror), tmp_path)
    assert left_in(tmp_path) == []


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "root").write_text("")
    with serve(Mirror(CONTENT)) as mirror, pytest.raises(InputError, match=r"cannot write .*choose another data root"):
        fetch(published(mirror), tmp_path / "root")


FETCH = """
import sys
from arelu_meta.data.files.download import PublishedFile, fetch
fetch(PublishedFile("set.bin", sys.argv[2], (sys.argv[1],)), __import__("pathlib").Path(sys.argv[3]))
"""


def test_a_killed_process_leaves_neither_a_lock_nor_a_half_file(tmp_path):
    with serve(Mirror(CONTENT, ("stall", "whole"))) as mirror:
        file = published(mirror)
        command = [sys.executable, "-c", FETCH, mirror.url, file.md5, str(tmp_path)]
        process = subprocess.Popen(command, cwd=PROJECT)
        part, deadline = tmp_path / "set.bin.part", time.monotonic() + 60
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
        assert left_in(tmp_path) == ["set.bin.part"]
        had = part.stat().st_size
        fetch(file, tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert mirror.requests[1][1] == f"bytes={had}-"


LOAD = """
import sys
from dataclasses import replace
from arelu_meta.data.readers import cifar
from arelu_meta.data.files.download import PublishedFile
archive = PublishedFile(cifar.CIFAR10.files[0].name, sys.argv[2], (sys.argv[1],))
cifar.CIFAR10 = replace(cifar.CIFAR10, files=(archive,))
print("ready", flush=True)
sys.stdin.readline()
print(cifar.load_cifar10(root=sys.argv[3]).digest)
"""


def test_two_processes_prepare_the_same_set_at_the_same_moment(tmp_path):
    """Both end well with the same images; the archive was sent once and one copy is there."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for number, name in enumerate((*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")):
            pixels = np.random.default_rng(number).integers(0, 256, (200, 3072), dtype=np.uint8)
            batch = pickle.dumps({"data": pixels, "labels": [number] * 200}, protocol=2)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(batch)
            archive.addfile(member, io.BytesIO(batch))
    content, root = stream.getvalue(), tmp_path / "root"
    with serve(Mirror(content)) as mirror:
        mirror.delay = 1.0
        arguments = [mirror.url, hashlib.md5(content, usedforsecurity=False).hexdigest(), str(root)]
        command = [sys.executable, "-W", "ignore", "-c", LOAD, *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes = [subprocess.Popen(command, cwd=PROJECT, **pipes) for _ in range(2)]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        digests = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64
    assert len(mirror.requests) == 1
    assert left_in(root) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only(tmp_path, monkeypatch, capsys):
    with serve(Mirror(CONTENT)) as mirror:
        fetch(published(mirror), tmp_path / "quiet")
        assert capsys.readouterr() == ("", "")
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        fetch(published(mirror), tmp_path / "loud")
    assert "set.bin" in terminal.getvalue()
    assert "1.0" in terminal.getvalue()  # MB


# Archives


def tar_member(name, content=b"evil", **fields):
    member = tarfile.TarInfo(name)
    member.size = len(content) if fields.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(member, field, value)
    return member, io.BytesIO(content)


def write_tar(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            archive.addfile(member, content)


def assert_refused(tmp_path, archive, message):
    root = tmp_path / "root"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message) as caught:
        unpack(archive, root, "top")
    assert "\n" not in str(caught.value)
    assert [file.name for file in root.iterdir() if not file.name.endswith(".lock")] == []
    assert sorted(path for path in tmp_path.iterdir() if path != root) == before


def test_unpacks_the_folder(tmp_path):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", b"one"), tar_member("top/deep/y", b"two"))
    top = unpack(tmp_path / "a.tar.gz", tmp_path / "root", "top")
    assert (top / "x").read_bytes() == b"one"
    assert (top / "deep" / "y").read_bytes() == b"two"
    assert left_in(top.parent) == ["top"]


@pytest.mark.parametrize("name", ["../evil", "top/../../evil"])
def test_a_member_that_climbs_out_is_refused(tmp_path, name):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/good"), tar_member(name))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "is refused: .*evil.* outside the destination")


def test_an_absolute_member_stays_inside(tmp_path):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/good"), tar_member(f"{tmp_path}/evil"))
    unpack(tmp_path / "a.tar.gz", tmp_path / "root", "top")
    assert left_in(tmp_path) == ["a.tar.gz", "root"]
    assert left_in(tmp_path / "root") == ["top"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    link = tar_member("top/link", type=kind, linkname="/etc")
    write_tar(tmp_path / "a.tar.gz", tar_member("top/good"), link, tar_member("top/link/passwd"))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "is refused: .*'top/link'")


@pytest.mark.parametrize("keep", [10, 200, -60])
def test_a_damaged_archive(tmp_path, keep):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", os.urandom(5000)))
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[:keep])
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "is damaged .*delete it and load the set again")


def test_another_sets_archive(tmp_path):
    write_tar(tmp_path / "a.tar.gz", tar_member("other/x"))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "holds no folder 'top'")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def refuse(source, target, *_):
        target.write(source.read(10))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", b"a" * 1000))
    monkeypatch.setattr(tarfile, "copyfileobj", refuse)
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "No space left on device; free some space")
