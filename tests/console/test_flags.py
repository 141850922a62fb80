from pathlib import Path

import pytest

from arelu_meta.console import flags
from arelu_meta.errors import InputError
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.spec import FewShotSpec


def parse(*argv: str) -> tuple[FewShotSpec, Execution]:
    return flags.parse(FewShotSpec, module="arelu_meta.maml", description="", default_task="digits", argv=argv)


def test_without_flags_the_task_file():
    spec, execution = parse()
    assert spec.task == "digits"
    assert spec.network.activation == "arelu"
    assert execution == Execution()


def test_flags_replace_values_of_the_file():
    spec, execution = parse(
        "--ways", "3", "--inner-lr", "0.1", "--activation", "relu", "--seed", "4", "--device", "cpu", "--threads", "1"
    )
    assert (spec.episode.ways, spec.training.inner_lr, spec.network.activation, spec.seed) == (3, 0.1, "relu", 4)
    assert (spec.episode.shots, spec.training.outer_lr) == (1, 0.005)
    assert (execution.device, execution.threads) == ("cpu", 1)


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


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    settings = set(parse()[0].flat()) - {"task", "version", "summary", "kind"} | set(Execution.model_fields)
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
