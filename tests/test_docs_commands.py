"""Every command that the documentation names is one, with flags and values that it takes; to run all takes days."""

import re
import sys
from pathlib import Path

import pytest

from arelu_meta import __main__ as console
from arelu_meta import kinds, lr_view
from arelu_meta.console.command_line import Parser
from tests.pages import DOCS, PAGES, blocks, commands_of

# Words that stand for something, and what stands for it here.
STANDS_FOR = {"$SLURM_ARRAY_TASK_ID/8": "1/8"}
# What is no command line that can be read: a pattern, and why.
LEFT_OUT = {
    r"^(python -m arelu_meta|arelu-meta)$": "lists what there is; tests/test_main.py runs it",
    r"COMMAND|NAME\b": "any command",
    r"\.\.\.$": "more words follow",
    r"^(python -m arelu_meta\.|arelu-meta )\w+( --help)?$": "names a command and no use of it",
}
COMMANDS = {line: words for page in PAGES for line, words in commands_of(page)}


class Parsed(BaseException):
    """The flags were read without a complaint; nothing is run."""


@pytest.fixture(autouse=True)
def stop_when_parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """End a command where its flags are read: of runs, where they have become a spec."""

    def stopping(original):
        def read(*arguments, **options):
            original(*arguments, **options)
            raise Parsed

        return read

    for module in (kinds.command, lr_view):
        monkeypatch.setattr(module, "read_flags", stopping(module.read_flags))
    monkeypatch.setattr(Parser, "parse_args", stopping(Parser.parse_args))
    monkeypatch.chdir(tmp_path)
    for folder in ("my_photos", "my_folder", "folder", "FOLDER"):
        Path(folder).mkdir()
    Path("mine.py").write_text("\n".join(blocks("extending.md", "python")[:1]) + "\nHalfSure = Cautious\n")
    Path("three_ways.toml").write_text((DOCS.parent / "tasks" / "digits.toml").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)  # of another page


@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(re.search(left, line) for left in LEFT_OUT)])
def test_the_command_is_there(line: str):
    with pytest.raises(Parsed):
        console.main([STANDS_FOR.get(word, word) for word in COMMANDS[line]])


def test_commands_were_found():
    """A pattern that finds nothing would pass for ever."""
    assert len(COMMANDS) > 100
    named = {words[0] for words in COMMANDS.values() if words}
    assert named >= {"maml", "adapt", "predict", "compare", "judge", "store"}


@pytest.mark.parametrize("line", ["maml --wayz 5", "compare x --on moon", "maml --ways many"])
def test_a_wrong_one_would_be_noticed(line: str, capsys: pytest.CaptureFixture[str]):
    assert console.main(line.split()) == 2
    assert capsys.readouterr().err.startswith("error: ")
