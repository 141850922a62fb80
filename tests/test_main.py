"""`python -m arelu_meta`: the lists, without torch."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta import __version__, activations, backbones, data, kinds
from arelu_meta.__main__ import commands, main, modules
from arelu_meta.console import catalog

Python = Callable[..., subprocess.CompletedProcess[str]]
LOADED = "print(sorted({'torch', 'mlflow'} & set(sys.modules)))"


def test_lists_everything(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    firsts = {line.split()[0] for line in lines if line.strip()}
    for names in (activations.names(), backbones.names(), data.names(), catalog.names("task"), kinds.names()):
        assert set(names) <= firsts
    for command in commands():
        assert any(f"python -m {command}" in line for line in lines)


def test_what_is_left_on_a_screen_is_where_to_start(capsys: pytest.CaptureFixture[str]):
    """The lists are longer than a screen of 24 lines, so the commands at their head are not seen."""
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 24
    begin = lines.index("start here")
    assert begin > len(lines) - 24
    words = [line.split()[1] for line in lines[begin + 1 :]]
    assert set(words) - {"COMMAND"} <= modules().keys()
    assert {"maml", "adapt"} <= set(words)


def test_parameter_counts_are_shown(capsys: pytest.CaptureFixture[str]):
    main([])
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    for entry in activations.entries():
        count = f"{entry.parameters}+" if entry.per_channel else str(entry.parameters)
        assert rows[entry.name][1:3] == [entry.group, count]


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"arelu_meta {__version__}\n"


def test_wrong_flag_ends_with_two(python: Python):
    done = python("-m", "arelu_meta", "--versoin")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--versoin" in done.stderr


def test_the_first_word_names_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    for name in commands():
        with pytest.raises(SystemExit) as ended:
            main([name.removeprefix("arelu_meta."), "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: python -m {name}")
    monkeypatch.setattr("sys.argv", ["arelu-meta", "maml", "--shots", "-1"])
    assert main() == 2
    assert "shots" in capsys.readouterr().err


def test_a_misspelt_command_is_told_the_near_one(capsys: pytest.CaptureFixture[str]):
    assert main(["clasify", "--seed", "1"]) == 2
    assert capsys.readouterr().err == "error: unknown command 'clasify'; did you mean 'classify'?\n"


def test_list_imports_no_torch(python: Python):
    code = f"import sys; from arelu_meta.__main__ import main; main([]); {LOADED}"
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words",
    [["adapt", "no_photos/"], ["maml", "--data", "no.npz"], ["finetune", "--model", "resnet18", "--data", "a/b"]],
)
def test_images_that_are_not_there_are_told_before_torch_is_loaded(python: Python, words: list[str]):
    code = f"import sys\nfrom arelu_meta.__main__ import main\nassert main({words!r}) == 2\n{LOADED}"
    done = python("-c", code)
    assert done.stdout == "[]\n"
    assert done.stderr.startswith(f"error: no file or folder {words[-1]!r}; check the path")


def test_every_command_runs_as_a_module_and_its_help_imports_no_torch(python: Python):
    code = """if True:
        import contextlib, io, runpy, sys
        names = sys.argv[1].split()
        for flag in ("--help", "--version"):
            for name in names:
                sys.argv = ["x", flag]
                said = io.StringIO()
                try:
                    with contextlib.redirect_stdout(said):
                        runpy.run_module(name, run_name="__main__", alter_sys=True)
                except SystemExit as ended:
                    print(ended.code, said.getvalue().splitlines()[0], sep=";", end=";")
                    print(*sorted({"torch", "mlflow"} & set(sys.modules)))
    """
    done = python("-W", "ignore::RuntimeWarning", "-c", code, " ".join(commands()))
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(commands())
    for name, line in zip([*commands()] * 2, lines, strict=True):
        code, said, loaded = line.split(";")
        assert (code, loaded) == ("0", "")
        assert said.startswith((f"usage: python -m {name}", f"arelu_meta {__version__}"))


def test_every_module_at_the_top_that_runs_is_listed(root: Path):
    package = root / "arelu_meta"
    runs = [
        path
        for path in [*package.glob("*.py"), *package.glob("*/__main__.py")]
        if "sys.exit(main())" in path.read_text()
    ]
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__main__") for path in runs}
    assert names == {"arelu_meta", *commands()}
    assert all(commands().values())
