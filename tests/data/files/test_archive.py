import errno
import io
import os
import shutil
import stat
import tarfile
import zipfile

import pytest

from arelu_meta.data.files.archive import unpack
from arelu_meta.errors import InputError


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


def test_unpacks_tar_and_zip_alike(tmp_path):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", b"one"), tar_member("top/deep/y", b"two"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("top/x", "one")
        archive.writestr("top/deep/y", "two")
    for number, name in enumerate(("a.tar.gz", "a.zip")):
        top = unpack(tmp_path / name, tmp_path / str(number), "top")
        assert (top / "x").read_bytes() == b"one"
        assert (top / "deep" / "y").read_bytes() == b"two"
        assert [file.name for file in top.parent.iterdir() if not file.name.endswith(".lock")] == ["top"]


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/evil", "C:/evil", "..\\evil", "top\\..\\..\\evil"])
def test_a_member_that_climbs_out_is_refused(tmp_path, name):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/good"), tar_member(name))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "would leave the folder")


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/evil"])
def test_a_zip_member_that_climbs_out_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("top/good", "good")
        archive.writestr(name, "evil")
    assert_refused(tmp_path, tmp_path / "a.zip", "would leave the folder")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    link = tar_member("top/link", type=kind, linkname="/etc")
    write_tar(tmp_path / "a.tar.gz", tar_member("top/good"), link, tar_member("top/link/passwd"))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "'top/link' is a link or a device")


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("top/link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(entry, "/etc")
    assert_refused(tmp_path, tmp_path / "a.zip", "is a link or a device")


@pytest.mark.parametrize("keep", [10, 200, -60])
def test_a_damaged_archive(tmp_path, keep):
    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", os.urandom(5000)))
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[:keep])
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "is damaged .*delete it and load the set again")


def test_a_zip_with_flipped_bytes(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("top/x", b"a" * 1000)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[500] ^= 1
    (tmp_path / "a.zip").write_bytes(content)
    assert_refused(tmp_path, tmp_path / "a.zip", "is damaged")


def test_another_sets_archive(tmp_path):
    write_tar(tmp_path / "a.tar.gz", tar_member("other/x"))
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "holds no folder 'top'")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def refuse(source, target):
        target.write(source.read(10))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_tar(tmp_path / "a.tar.gz", tar_member("top/x", b"a" * 1000))
    monkeypatch.setattr(shutil, "copyfileobj", refuse)
    assert_refused(tmp_path, tmp_path / "a.tar.gz", "No space left on device; free some space")
