"""A few mutants of every file that is read, and those that once ended in a traceback, a hang or worse.

`python -m tests.faults.mutants --count 1000` reads many more, in processes of their own.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.mutants import mutant, outcome
from tests.faults.specimens import SPECIMENS, Specimen

FEW = 6
NASTY = {  # contents that were read badly once, by specimen and file
    "cifar_binary": {"cifar-10-batches-bin/batches.meta.txt": [b"\xff\xfe" * 10]},
    "cifar_pickle": {
        "cifar-10-batches-py/data_batch_1": [
            b"\x80\x02P1\n.",
            b"\x80\x02]r\xff\xff\xff\x7f.",
            b"(" * 1000,
            b"\x80\x02)" + b"2\x86" * 60 + b"}hs.",
        ]
    },
    "csv": {"set/all.csv": [b'"file\nname",label,split\n', b"filename,label,split\n\0,a,train\n", b"\xff\xfe"]},
    "npz": {"x.npz": [b"PK\5\6" + bytes(18), b"PK\3\4" * 20]},
    "task": {
        "mine.toml": [
            b"a" + b".a" * 20_000 + b" = 1",
            b"x = " + b"[" * 5000,
            b'kind = ["a"]',
            b"\xef\xbb\xbf",
            b"x = 1_",
        ]
    },
    "experiment": {"mine.toml": [b'seeds = "0-99999999"', b"grid = 1", b'[report]\npublished = ["../../x"]']},
    "checkpoint": {"checkpoint.pt": [b"", b"PK\5\6" + bytes(18), b"\x80\x02]q\0."]},
    "safetensors": {"x.safetensors": [b"\xff" * 8, b"\2" + bytes(7) + b"{}", b'\7\0\0\0\0\0\0\0{"a":1}']},
    "pth": {"x.pth": [b"\x80\x02]q\0.", b""]},
    "few_shot": {
        "model/few_shot.json": [
            b"[]",
            b"{}",
            b"null",
            b"[" * 100_000,
            b'{"settings": 1}',
            b'{"settings": {"ways": -1}}',
            b"\xff",
        ]
    },
    "mlmodel": {
        "MLmodel": [
            b"",
            b"[]",
            b"flavors: 1",
            b"a: &a [*a]",
            b"!!python/object/apply:os.system [x]",
            b"\t",
            b"flavors: {python_function: {loader_module: arelu_meta.kinds.few_shot.model}}",
        ]
    },
    "network": {"model.pt2": [b"", b"PK\5\6" + bytes(18), b"\x80\x02]q\0."]},
    "journal": {
        "runs/tiny-0/journal/0123/sent.json": [
            b"[]",
            b"null",
            b'{"run_id": 1e999, "sent": 1e999, "store": "STORE"}',
            b'{"run_id": "../..", "sent": 0, "store": "STORE"}',
            b'{"run_id": "", "sent": -1, "store": "STORE"}',
            b'{"run_id": "", "sent": 9, "store": "http://127.0.0.1:9/"}',
        ]
    },
    "journal_lines": {
        "runs/tiny-0/journal/0123/entries.txt": [
            b"",
            b"[]",
            b"[" * 100_000,
            b'{"kind": "start"}',
            b'{"kind": "end", "time": 1, "status": "RUNNING"}',
            b'{"kind": "start", "time": 1, "experiment": "\\u0000", "name": "", "tags": {}, "process": "a:9e9:"}',
        ]
    },
    "header": {
        "header.json": [
            b"[]",
            b"1",
            b'{"channels": "3"}',
            b'{"channels": 1e9}',
            b'{"channels": 3, "mean": [1]}',
            b'{"channels": 3, "class_names": {}}',
        ]
    },
}


@pytest.fixture(scope="module")
def made() -> Callable[[str], Specimen]:
    known: dict[str, Specimen] = {}
    return lambda name: known.setdefault(name, known.get(name) or SPECIMENS[name]())


def put(specimen: Specimen, folder: Path, **replaced: bytes) -> None:
    for name, content in {**specimen.files, **replaced}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("name", SPECIMENS)
def test_whole_files_are_read_and_damaged_ones_are_read_or_refused_in_one_line(name: str, tmp_path: Path, made):
    specimen = made(name)
    put(specimen, tmp_path / "whole")
    assert outcome(specimen, tmp_path / "whole") == ("accepted", "")
    for number in range(FEW):
        folder = tmp_path / str(number)
        mutant(specimen, folder, 1, number)
        found, where = outcome(specimen, folder)
        assert found in ("clean", "accepted"), f"mutant 1/{number} of {name}: {found} {where}"


@pytest.mark.parametrize("name", NASTY)
def test_those_that_were_read_badly_once(name: str, tmp_path: Path, made):
    specimen = made(name)
    for file, contents in NASTY[name].items():
        for number, content in enumerate(contents):
            put(specimen, tmp_path / str(number), **{file: content})
            assert outcome(specimen, tmp_path / str(number))[0] in ("clean", "accepted"), content[:40]


def test_mutants_differ_and_can_be_made_again(tmp_path: Path, made):
    """Else the tests above would say nothing."""
    specimen, contents = made("npz"), []
    for number in (0, 1, 2, 0):
        folder = tmp_path / str(len(contents))
        mutant(specimen, folder, 0, number)
        contents.append((folder / "x.npz").read_bytes())
    assert contents[0] == contents[3]
    assert len({specimen.files["x.npz"], *contents}) == 4


def test_what_is_no_line_is_found(tmp_path: Path):
    def fails(folder: Path) -> None:
        raise KeyError(folder)

    found, where = outcome(Specimen("x", {}, fails, ()), tmp_path)
    assert found == "traceback"
    assert "KeyError" in where
