"""`python -m arelu_meta`: the lists, without torch."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta import __version__, activations, backbones, data, kinds
from arelu_meta.__main__ import commands, main
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


def test_list_imports_no_torch(python: Python):
    code = f"import sys; from arelu_meta.__main__ import main; main([]); {LOADED}"
    assert python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", commands())
def test_help_of_every_command_imports_no_torch(python: Python, command: str):
    entry = f"{command}.__main__" if command in ("arelu_meta.data", "arelu_meta.store") else command
    code = (
        f"import sys, atexit; atexit.register(lambda: {LOADED}); sys.argv = ['x', '--help']\n"
        f"from {entry} import main; sys.exit(main())"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m {command}")
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_command_is_listed_and_runs_as_a_module(python: Python):
    for command in commands():
        done = python("-m", command, "--version")
        assert (done.returncode, done.stdout) == (0, f"arelu_meta {__version__}\n")


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
