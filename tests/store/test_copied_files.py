"""Artifacts of one folder in another: those that are missing, or were not written to their end."""

from pathlib import Path

from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from arelu_meta.store.copied_files import copy_files, file_sizes


def test_what_is_missing_or_cut_off_is_copied(tmp_path: Path):
    source, target = (LocalArtifactRepository((tmp_path / name).as_uri()) for name in ("a", "b"))
    for path, text in {"x/y z.txt": "whole", "cut.txt": "12345", "same.txt": "same", "MLmodel": "id: old"}.items():
        (tmp_path / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / path).write_text(text)
    assert file_sizes(target) == {}
    assert file_sizes(source) == {"x/y z.txt": 5, "cut.txt": 5, "same.txt": 4, "MLmodel": 7}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "cut.txt").write_text("12")
    (tmp_path / "b" / "same.txt").write_text("same")
    changed = {"MLmodel": lambda text: text.replace("old", "newer")}
    copied = copy_files(source, target, tmp_path / "place", changed=changed)
    assert copied == {"x/y z.txt": 5, "cut.txt": 5, "MLmodel": 9}
    assert (tmp_path / "b" / "x" / "y z.txt").read_text() == "whole"
    assert (tmp_path / "b" / "MLmodel").read_text() == "id: newer"
    assert copy_files(source, target, tmp_path / "place", changed=changed) == {}
    assert not (tmp_path / "place").exists()
