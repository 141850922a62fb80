"""Downloads: one folder for each process, which goes with it."""

import functools
from pathlib import Path

import pytest

from arelu_meta.errors import InputError
from arelu_meta.store import downloads


def test_an_address_with_a_password_is_refused_and_not_shown():
    """It would be a parameter of the run."""
    with pytest.raises(InputError, match=r"^http://me:\*\*\*@127.0.0.1:1/x.pth has a password, which would be"):
        downloads.download_model("http://me:s3cret@127.0.0.1:1/x.pth")


def test_an_address_that_cannot_be_fetched():
    with pytest.raises(InputError, match=r"^cannot fetch http://127.0.0.1:1/x.pth: .*; name a file or folder on this"):
        downloads.download_model("http://127.0.0.1:1/x.pth")


def test_what_was_downloaded_is_in_one_folder_that_goes_with_the_process(tmp_path: Path, monkeypatch):
    """Nothing else is left in the temporary folder."""
    at_the_end = []
    monkeypatch.setattr("atexit.register", lambda *call, **options: at_the_end.append((*call, options)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("1 2 3")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(downloads, "_downloads", functools.cache(downloads._downloads.__wrapped__))
    first, second = (downloads.download_model((tmp_path / "model").as_uri()) for _ in range(2))
    assert first != second
    assert (first / "weights").read_text() == "1 2 3"
    ((remove, folder, options),) = at_the_end
    assert [str(path) for path in (tmp_path / "temporary").iterdir()] == [folder]
    remove(folder, **options)
    assert list((tmp_path / "temporary").iterdir()) == []
