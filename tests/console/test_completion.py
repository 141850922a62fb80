import shutil
import subprocess

import pytest

from arelu_meta.console.completion import SHELLS, Completed, script

COMMANDS = {
    "maml": Completed("meta-train, Finn's way", {"--task": "the task", "--ways": "classes"}),
    "data": Completed("image sets", {"--json": "as JSON"}, ["list", "show"]),
    "adapt": Completed("few images", {"--task": "the task"}, values={"--task": ["adapt_digits"]}),
}
VALUES = {"--task": ["digits", "glyphs"]}


def completed(words: list[str]) -> list[str]:
    """What bash offers after some words, the last of which is not finished."""
    line = " ".join(f'"{word}"' for word in words)
    code = f"{script('bash', COMMANDS, VALUES)}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
    code += '_arelu_meta; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["arelu-meta", ""], ["maml", "data", "adapt"]),
        (["arelu-meta", "adapt", "--task", ""], ["adapt_digits"]),
        (["arelu-meta", "m"], ["maml"]),
        (["arelu-meta", "maml", "--w"], ["--ways"]),
        (["arelu-meta", "maml", "--task", "g"], ["glyphs"]),
        (["arelu-meta", "data", "s"], ["show"]),
        (["arelu-meta", "data", "show", "--w"], []),
    ],
)
def test_bash_completes(words: list[str], offered: list[str]):
    assert completed(words) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_take_their_script(shell: str):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    checked = subprocess.run([shell, "-n"], input=script(shell, COMMANDS, VALUES), capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_fish_is_told_what_everything_does():
    lines = script("fish", COMMANDS, VALUES).splitlines()
    of_maml = "complete -c arelu-meta -n '__fish_seen_subcommand_from maml'"
    assert r"complete -c arelu-meta -n __fish_use_subcommand -f -a maml -d 'meta-train, Finn\'s way'" in lines
    assert f"{of_maml} -l task -x -a 'digits glyphs' -d 'the task'" in lines
    assert f"{of_maml} -l ways -d 'classes'" in lines
    of_adapt = "complete -c arelu-meta -n '__fish_seen_subcommand_from adapt'"
    assert f"{of_adapt} -l task -x -a 'adapt_digits' -d 'the task'" in lines
