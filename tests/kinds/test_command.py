"""Flags of the commands that run one kind, over task files."""

import gc
import shlex
from pathlib import Path
from typing import Any

import pytest

from arelu_meta.errors import InputError
from arelu_meta.kinds import command
from arelu_meta.kinds.command import read_flags, repeating_command
from arelu_meta.kinds.execution import EpisodeExecution, Execution


def parse(*argv: str) -> tuple[Any, Execution]:
    return read_flags("few_shot", argv)


def parse_finetune(*argv: str) -> tuple[Any, Execution]:
    return read_flags("transfer", argv, kind_by_flag={"--model": "finetune"})


def test_without_flags_the_task_file():
    spec, execution = parse()
    assert spec.task == "digits"
    assert spec.network.activation == "arelu"
    assert execution == EpisodeExecution()


def test_flags_replace_values_of_the_file():
    spec, execution = parse(
        "--ways", "3", "--inner-lr", "0.1", "--activation", "relu", "--seed", "4", "--device", "cpu", "--threads", "1"
    )
    assert (spec.episode.ways, spec.training.inner_lr, spec.network.activation, spec.seed) == (3, 0.1, "relu", 4)
    assert (spec.episode.shots, spec.training.outer_lr) == (1, 0.005)
    assert (execution.device, execution.threads) == ("cpu", 1)


def test_the_protocol_of_the_paper_drops_the_bounds_of_the_task(tmp_path: Path):
    """The tasks digits, glyphs and omniglot bound episodes by 25, the paper has none; a bound of one's own stays."""
    for task in ("digits", "glyphs", "omniglot"):
        assert parse("--task", task)[0].training.episode_clip == 25
        assert parse("--task", task, "--protocol", "paper")[0].training.episode_clip is None
    named = parse("--protocol", "paper", "--episode-clip", "7", "--outer-clip", "3")[0].training
    assert (named.episode_clip, named.outer_clip) == (7, 3)
    own = tmp_path / "own.toml"
    own.write_text(
        'kind = "few_shot"\n[data]\ndataset = "digits"\n[training]\nepisode_clip = 4\nouter_clip = 2\n'
        '[evaluation]\nprotocol = "paper"\n'
    )
    for flags in ((), ("--protocol", "paper")):  # the file says both, so both are meant
        training = parse("--task", str(own), *flags)[0].training
        assert (training.episode_clip, training.outer_clip) == (4, 2)


@pytest.mark.parametrize("flag", ["--inner-lr", "--inner_lr"])
def test_dashes_and_underscores(flag: str):
    assert parse(flag, "0.25")[0].training.inner_lr == 0.25
    assert parse(f"{flag}=0.25")[0].training.inner_lr == 0.25


def test_underscores_in_values_stay():
    spec, _ = parse("--activation=leaky_relu", "--backbone", "mnist_conv", "--experiment=my_runs")
    assert spec.network.activation == "leaky_relu"
    assert parse("--experiment", "__x")[1].experiment == "__x"


def test_options_are_read_as_numbers_and_truth_values():
    spec, _ = parse("--activation-options", "alpha=0.5", "clamp=sigmoid", "--backbone-options", "filters=32", "a=true")
    assert spec.network.activation_options == {"alpha": 0.5, "clamp": "sigmoid"}
    assert spec.network.backbone_options == {"filters": 32, "a": True}
    assert type(spec.network.backbone_options["filters"]) is int


def test_tags_stay_words():
    assert parse("--tags", "team=vision", "batch=007")[1].tags == {"team": "vision", "batch": "007"}
    with pytest.raises(InputError, match="'vision' is not of the form KEY=VALUE"):
        parse("--tags", "vision")


def test_a_task_of_ones_own(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\ndataset = "digits"\n[episode]\nways = 3\nshots = 2\n')
    spec, _ = parse("--task", str(path), "--shots", "4")
    assert (spec.task, spec.episode.ways, spec.episode.shots) == ("mine", 3, 4)


def test_a_broken_task_file_is_named(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\ndataset = "digits"\n[episode]\nway = 3\n')
    with pytest.raises(InputError, match=r"mine\.toml \[episode\]: unknown key 'way', did you mean 'ways'"):
        parse("--task", str(path))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--activaton", "relu"], "unknown flag '--activaton'; did you mean '--activation'?"),
        (["--way", "5"], "unknown flag '--way'; did you mean '--ways'?"),
        (["--activation", "arleu"], "unknown activation 'arleu'; did you mean 'arelu'?"),
        (["--backbone", "con4"], "unknown backbone 'con4'; did you mean 'conv4'?"),
        (["--dataset", "digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
        (["--task", "digit"], "unknown task 'digit'; did you mean 'digits'?"),
        (["--shots", "0"], "--shots 0: must be at least 1"),
        (["--shots", "five"], "--shots five: must be a valid integer"),
        (["--inner-lr", "-1"], "--inner-lr -1: must be greater than 0"),
        (["--outer_lr=-0.5"], "--outer-lr -0.5: must be greater than 0"),
        (["--inner-lr", "nan"], "--inner-lr nan: must be a finite number"),
        (["--activation-options", "alpha"], "'alpha' is not of the form KEY=VALUE"),
        (["--shots"], "argument --shots: expected one argument"),
        (["--threads", "-1"], "--threads -1: must be at least 0"),
    ],
)
def test_wrong_flags(argv: list[str], message: str):
    with pytest.raises(InputError) as raised:
        parse(*argv)
    assert str(raised.value) == message


@pytest.mark.parametrize("flag", ["--data", "--train-per-class", "--dataset=birds"])
def test_a_flag_of_the_commands_other_kind_says_what_asks_for_that(flag: str):
    """`finetune --data my_folder` is meant as `finetune --model NAME --data my_folder`."""
    words = [flag] if "=" in flag else [flag, "5"]
    name = flag.partition("=")[0]
    with pytest.raises(InputError, match=f"^{name} goes with --model, which names the network; add --model$"):
        parse_finetune(*words)
    with pytest.raises(InputError, match="unknown flag '--train-per-clas'; did you mean '--train-per-class'"):
        parse_finetune("--model", "resnet18", "--train-per-clas", "5")


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    settings = set(parse()[0].flat()) - {"task", "version", "summary", "kind"} | set(EpisodeExecution.model_fields)
    for name in settings:
        assert f"--{name.replace('_', '-')} " in shown
    assert "[0.005]" in shown


def test_help_shows_the_defaults_of_the_chosen_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\ndataset = "digits"\n[training]\nmeta_batch = 77\n')
    with pytest.raises(SystemExit):
        parse("--task", str(path), "--help")
    shown = capsys.readouterr().out
    assert "[77]" in shown
    assert "--task mine" in shown


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ([], "transfer"),
        (["--model", "resnet18", "--data", "digits"], "finetune"),
        (["--model=resnet18", "--data", "digits"], "finetune"),
        (["--task", "finetune", "--data", "digits"], "finetune"),
        (["--task", "digits_to_street", "--epochs", "60"], "transfer"),
    ],
)
def test_a_command_of_two_kinds_takes_that_of_the_task_or_of_the_flags(argv: list[str], kind: str):
    assert parse_finetune(*argv)[0].kind == kind


def test_the_task_file_decides_before_the_flags():
    with pytest.raises(InputError, match="unknown flag '--model'"):
        parse_finetune("--task", "digits_to_street", "--model", "resnet18")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("few_shots", "mine.toml: unknown kind 'few_shots'; did you mean 'few_shot'?"),
        ("segment", "task 'mine' is of kind 'segment'; run it with python -m arelu_meta.segment"),
    ],
)
def test_a_task_of_another_kind(tmp_path: Path, kind: str, message: str):
    path = tmp_path / "mine.toml"
    path.write_text(f'kind = "{kind}"\n[data]\ndataset = "digits"\n')
    with pytest.raises(InputError) as raised:
        parse("--task", str(path))
    assert str(raised.value).endswith(message)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("few_shot", "--task digits --ways 3 --inner-lr 0.1 --activation relu --seed 4"),
        ("classify", "--task digits_classify --epochs 3 --activation elu"),
        ("transfer", "--task digits_to_street --milestones 3 5 --no-normalise"),
        ("finetune", "--task finetune --data digits --model resnet18"),
    ],
)
def test_the_command_that_repeats_a_run_gives_its_spec(kind: str, words: str):
    """And has no more flags than the one it was run by."""
    given = words.split()
    spec = read_flags(kind, given)[0]
    command = shlex.split(repeating_command(spec))
    assert command[:2] == ["python", "-m"]
    assert read_flags(kind, command[3:])[0].identity == spec.identity
    assert len(command) <= len(given) + 3


def test_a_task_file_of_ones_own_has_no_such_command():
    spec = parse("--task", "digits")[0]
    assert repeating_command(spec.model_copy(update={"task": "my_own"})) == ""


def test_garbage_is_collected_again_once_all_is_imported():
    with command._collecting_later():
        assert not gc.isenabled()
    assert gc.isenabled()
