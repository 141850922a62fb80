"""The declarative files: each is found, loaded and valid."""

from pathlib import Path

import pytest

from arelu_meta import kinds
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
TASKS = sorted((ROOT / "tasks").glob("*.toml"))
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))


def test_every_file_is_found_by_name():
    assert len(catalog.names("task")) == len(TASKS) >= 1
    assert len(catalog.names("experiment")) == len(EXPERIMENTS)
    for kind, files in (("task", TASKS), ("experiment", EXPERIMENTS)):
        assert [catalog.find(kind, path.stem).resolve() for path in files] == [path.resolve() for path in files]


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_task_is_valid(path: Path):
    values = catalog.read("task", path.stem)
    spec = validated(kinds.entry(values["kind"]).spec_class, values, path.name)
    assert spec.task == path.stem
    assert spec.summary


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_head_of_a_task_holds_the_command_that_runs_it(path: Path):
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    assert "python -m arelu_meta." in head


def test_experiments_are_read():
    for path in EXPERIMENTS:
        assert catalog.read("experiment", path.stem)["summary"]


def test_digits_is_what_the_issue_asks_for():
    values = catalog.read("task", "digits")
    assert values["task"] == "digits"
    assert (values["episode"]["ways"], values["episode"]["shots"]) == (5, 1)
    assert values["network"] == {"backbone": "mnist_conv", "activation": "arelu"}
    training = values["training"]
    assert [training[key] for key in ("inner_steps", "meta_batch", "iterations", "inner_lr")] == [5, 32, 100, 0.005]


def test_a_file_of_ones_own_by_path(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('kind = "few_shot"\n[data]\ndataset = "digits"\n')
    assert catalog.read("task", str(path)) == {"task": "mine", "kind": "few_shot", "data": {"dataset": "digits"}}


def test_missing_files():
    with pytest.raises(InputError, match="unknown task 'digit'; did you mean 'digits'"):
        catalog.read("task", "digit")
    with pytest.raises(InputError, match=r"task file 'no/such\.toml' does not exist"):
        catalog.read("task", "no/such.toml")


@pytest.mark.parametrize("content", [b"ways = = 5", b"\xff\xfe\x00"])
def test_broken_files_are_named(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.toml is not valid TOML") as raised:
        catalog.read("task", str(path))
    assert "\n" not in str(raised.value)


def test_a_folder_is_no_file(tmp_path: Path):
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="does not exist"):
        catalog.read("task", str(tmp_path / "folder.toml"))
