"""The wheel: one top-level name, everything in it, and it works where there is no checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from arelu_meta import __version__

SOURCES = (
    *("arelu_meta", "tasks", "experiments", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"),
    *("CHANGELOG.md", "CITATION.cff"),
)
TINY = [
    "--iterations",
    "1",
    "--meta-batch",
    "2",
    "--inner-steps",
    "1",
    "--test-episodes",
    "2",
    "--validation-episodes",
    "2",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Built from the source archive, and that from a copy: setuptools leaves folders behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, source / name)
    (source / "tests").mkdir()
    (source / "tests" / "test_it.py").write_text("")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_source_archive_holds_what_the_wheel_needs_and_no_tests(wheel: Path):
    """That the wheel was built from it shows the rest."""
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"tasks/digits.toml", "experiments/maml_digits.toml", "CHANGELOG.md", "CITATION.cff", "LICENSE"} <= inside
    assert [name for name in inside if name.startswith("tests")] == []


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202  (a zip of ours)
    return folder


def test_only_one_top_level_name(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"arelu_meta"}
    assert len(tops) == 2


def test_every_source_file_is_inside(unpacked: Path, root: Path):
    """A package that setup.cfg does not list would be missing."""
    expected = {path.relative_to(root) for path in (root / "arelu_meta").rglob("*.py")}
    found = {path.relative_to(unpacked) for path in (unpacked / "arelu_meta").rglob("*.py")}
    assert found == expected
    assert (unpacked / "arelu_meta" / "py.typed").is_file()
    templates = Path("arelu_meta") / "reporting" / "templates"
    expected = {path.name for path in (root / templates).iterdir()}
    assert "page.html" in expected
    assert {path.name for path in (unpacked / templates).iterdir()} == expected


def test_declarative_files_are_inside(unpacked: Path, root: Path):
    for folder, pattern in (("tasks", "*.toml"), ("experiments", "*.toml"), ("experiments/published", "*.csv")):
        expected = {path.name: path.read_text() for path in (root / folder).glob(pattern)}
        found = {path.name: path.read_text() for path in (unpacked / "arelu_meta" / folder).glob(pattern)}
        assert expected
        assert found == expected


def installed(unpacked: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder with the wheel's files before everything else, and no checkout."""
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    environment["PYTHONPATH"] = str(unpacked)
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=180
    )


def test_package_is_the_one_of_the_wheel(unpacked: Path, tmp_path: Path):
    code = "import arelu_meta, arelu_meta.console.catalog as c; print(arelu_meta.__file__); print(c.folder('task'))"
    done = installed(unpacked, tmp_path, "-c", code)
    package = unpacked / "arelu_meta"
    assert done.stdout.splitlines() == [str(package / "__init__.py"), str(package / "tasks")], done.stderr


def test_lists_what_there_is(unpacked: Path, tmp_path: Path):
    done = installed(unpacked, tmp_path, "-m", "arelu_meta")
    assert done.returncode == 0, done.stderr
    assert "\n  digits " in done.stdout


def test_command_works_from_an_empty_folder(unpacked: Path, tmp_path: Path):
    """The user's own tasks.py in that folder is in nobody's way."""
    (tmp_path / "tasks.py").write_text("raise RuntimeError('not me')\n")
    done = installed(unpacked, tmp_path, "-m", "arelu_meta.maml", *TINY)
    assert done.returncode == 0, done.stderr
    assert "arelu in mnist_conv: 5-way 1-shot" in done.stdout
    assert (tmp_path / "mlflow.db").is_file()


def test_the_citation_is_of_this_version(root: Path):
    assert f"\nversion: {__version__}\n" in (root / "CITATION.cff").read_text()
