from pathlib import Path

import pandas as pd
import pytest

from arelu_meta import data, kinds
from arelu_meta.analysis.settings import published_values
from arelu_meta.comparison.cells import (
    Cell,
    comparison_hash,
    expand,
    is_same,
    parse_only,
    parse_shard,
    scale_lengths,
    scale_metric,
    shard_of,
)
from arelu_meta.comparison.experiment import Experiment, read_experiment, read_published
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.kinds.session import divide
from arelu_meta.kinds.transfer.spec import TransferSpec
from tests.comparison import tiny

BUILT_IN = {
    "adaptation_omniglot": 15,
    "arelu_init": 80,
    "arelu_init_alpha": 80,
    "cifar10": 660,
    "cifar100": 540,
    "cifar100_curves": 270,
    "digits_splits": 20,
    "gain_controls": 30,
    "glyphs": 15,
    "glyphs_adapt": 40,
    "glyphs_frozen": 300,
    "glyphs_gain_twins": 130,
    "glyphs_init": 160,
    "glyphs_outer_rates": 300,
    "glyphs_own_rates": 500,
    "glyphs_rates": 100,
    "glyphs_splits": 150,
    "glyphs_unit_rates": 120,
    "inner_rates": 60,
    "learning_rates": 175,
    "maml_digits": 15,
    "maml_mnist": 150,
    "maml_mnist_clip": 200,
    "mnist_20_epochs": 880,
    "mnist_curves": 880,
    "mnist_first_epoch": 920,
    "mnist_init": 180,
    "mnist_unit_rates": 40,
    "segmentation": 25,
    "segmentation_sample": 15,
    "transfer_digits": 15,
    "transfer_mnist_to_svhn": 135,
    "transfer_mnist_to_svhn_caption": 45,
}


def experiment(**changes: object) -> Experiment:
    values = {
        "experiment": "mine",
        "summary": "s",
        "title": "t",
        "question": "q",
        "task": "digits",
        "seeds": [0, 1, 2],
        "settings": {"training": {"iterations": 7}},
        "grid": {"network": {"activation": ["relu", "arelu"]}, "training": {"inner_lr": [0.1, 0.01]}},
    }
    return validated(Experiment, values | changes, "mine.toml")


def test_every_value_of_every_axis_with_every_seed():
    """2 activations, 2 rates, 3 seeds: 12 cells, seeds slowest."""
    cells = expand(experiment())
    assert len(cells) == len({cell.spec.identity for cell in cells}) == 12
    assert [cell.spec.seed for cell in cells] == [0] * 4 + [1] * 4 + [2] * 4
    first = cells[1]
    assert first.values == {"activation": "relu", "inner_lr": 0.01}
    assert first.label == "relu inner_lr=0.01 seed 0"
    assert isinstance(first.spec, FewShotSpec)
    assert (first.spec.network.activation, first.spec.training.inner_lr) == ("relu", 0.01)
    assert (first.spec.training.iterations, first.spec.training.meta_batch) == (7, 32)  # the setting, the task's
    assert first.spec.identity == FewShotSpec.model_validate(first.spec.model_dump()).identity


def test_options_of_an_activation_are_an_axis():
    grid = {"network": {"activation_options": {"beta": [2.0, 1.0]}}}
    cells = expand(experiment(grid=grid, report={"arm": "beta", "baseline": "2"}, seeds="0"))
    assert [cell.spec.network.activation_options for cell in cells] == [{"beta": 2.0}, {"beta": 1.0}]


def test_the_protocol_of_the_paper_drops_the_bounds_of_the_task():
    """Task digits bounds episodes by 25 for `sound`; an experiment that names a bound itself keeps it."""
    paper = {"evaluation.protocol": "paper"}
    for settings, bounds in (
        ({}, (25, None)),
        (paper, (None, None)),
        ({**paper, "training": {"episode_clip": 5}}, (5, None)),
        ({**paper, "training.outer_clip": 2}, (None, 2)),
    ):
        training = expand(experiment(settings=settings))[0].spec.training
        assert (training.episode_clip, training.outer_clip) == bounds
    both = expand(
        experiment(
            grid={"evaluation": {"protocol": ["sound", "paper"]}}, report={"arm": "protocol", "baseline": "sound"}
        )
    )
    assert [cell.spec.training.episode_clip for cell in both[:2]] == [25, None]


def test_no_setting_is_chosen_where_nothing_validates():
    message = "validation_metric of the report 'validation/accuracy': protocol 'paper' holds no images back to validate"
    with pytest.raises(InputError, match=message):
        expand(
            experiment(settings={"evaluation.protocol": "paper"}, report={"validation_metric": "validation/accuracy"})
        )


def test_only_and_seeds():
    cells = expand(experiment(), only={"activation": ("arelu",), "inner_lr": ("1e-1",)}, seeds=(5, 6))
    assert [cell.label for cell in cells] == ["arelu inner_lr=0.1 seed 5", "arelu inner_lr=0.1 seed 6"]


def test_a_budget_is_part_of_the_spec():
    """0.5 of 7 iterations are 3.5, so 4: a share of 4/7."""
    whole, half = expand(experiment()), expand(experiment(), budget=0.5)
    assert {cell.spec.training.iterations for cell in half} == {4}
    assert not {cell.spec.identity for cell in whole} & {cell.spec.identity for cell in half}
    assert {cell.share for cell in half} == {4 / 7}
    assert {cell.share for cell in whole} == {1.0}
    assert comparison_hash(experiment()) != comparison_hash(experiment(), 0.5)


def test_hash_of_a_comparison_is_what_its_cells_do():
    one = comparison_hash(experiment())
    assert one == comparison_hash(experiment(seeds=[9], title="other words"))
    assert one != comparison_hash(experiment(settings={"training": {"iterations": 8}}))
    assert one != comparison_hash(experiment(grid={"network": {"activation": ["relu", "arelu"]}}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"network": {"activation": ["relu", "arleu"]}}}, "unknown activation 'arleu'; did you mean 'arelu'?"),
        ({"grid": {"network": {"activaton": ["relu"]}}, "report": {"arm": "activaton"}}, "unknown key 'activaton'"),
        ({"settings": {"training": {"iteratons": 3}}}, r"mine \[training\]: unknown key 'iteratons'"),
        ({"settings": {"training": {"iterations": 0}}}, "iterations = 0 must be at least 1"),
        ({"report": {"metric": "test/acuracy"}}, "unknown metric of the report 'test/acuracy'; did you mean"),
        ({"report": {"metric": "paper/best_batch_accuracy"}}, "unknown metric"),  # the protocol is the sound one
        ({"report": {"validation_metric": "validation/loss"}}, "unknown validation_metric"),
        ({"report": {"curves": ["train/speed"]}}, "unknown curve of the report 'train/speed'"),
        ({"report": {"baseline": "rleu"}}, "unknown baseline of the report 'rleu'; did you mean 'relu'?"),
        ({"report": {"controls": {"relu_gain": "x"}}}, "unknown control of the report 'relu_gain'"),
        ({"report": {"explained": "arleu"}}, "unknown explained arm of the report 'arleu'; did you mean 'arelu'?"),
        ({"report": {"explained": "relu"}}, "explained = 'relu' is the baseline of the report; name another arm"),
        (
            {"report": {"explained": "arelu", "controls": {"arelu": "x"}}},
            "explained = 'arelu' is the control of the report; name another arm",
        ),
        ({"report": {"arm": "lr"}}, "unknown arm 'lr'; known: activation, inner_lr"),
        ({"report": {"metrik": "x"}}, "unknown key 'metrik', did you mean 'metric'?"),
        ({"sedes": [1]}, "unknown key 'sedes', did you mean 'seeds'?"),
        ({"seeds": [1, 1]}, "name a seed twice"),
        ({"seeds": []}, "seeds"),
        ({"grid": {}}, "the grid has no axis"),
        ({"grid": {"seed": [1, 2]}}, "seed is no axis"),
        ({"grid": {"network": {"activation": []}}}, "activation"),
        ({"settings": {"network": {"activation": "relu"}}}, "is an axis of the grid and a setting"),
        ({"task": "digit"}, "unknown task 'digit'; did you mean 'digits'?"),
        ({"grid": {"network": {"activation": ["relu", "relu"]}}}, "two cells are the same run: 'relu seed 0' and"),
    ],
)
def test_what_is_wrong_is_one_line(changes: dict[str, object], message: str):
    with pytest.raises(InputError, match=message) as raised:
        expand(experiment(**changes))
    assert "\n" not in str(raised.value)


def test_a_file_of_ones_own(tmp_path: Path):
    path = tiny.write(tmp_path)
    assert [cell.label for cell in expand(read_experiment(str(path)))] == [
        "relu seed 0",
        "arelu seed 0",
        "relu seed 1",
        "arelu seed 1",
    ]


def test_all_built_in_experiments_are_counted():
    assert catalog.names("experiment") == sorted(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_experiments(name: str):
    """Each expands, whole and reduced; its published figures are of its arms; its head holds its command."""
    read = read_experiment(name)
    cells = expand(read)
    assert len(cells) == BUILT_IN[name]
    assert len(expand(read, budget=0.1)) == BUILT_IN[name]
    arms = {str(value) for value in read.axes[read.report.arm]}
    published = read_published(read, name)
    assert {row[read.report.arm] for row in published} <= arms
    assert all(0 < float(row["value"]) <= 100 for row in published)
    head = catalog.find("experiment", name).read_text().partition("\nsummary")[0]
    assert f"python -m arelu_meta.compare {name}" in head


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_alpha_and_beta_are_decayed_as_in_the_paper_beside_a_control(name: str):
    """5e-4 for all parameters, beside which the published figures stand, and for the weights alone."""
    training = [cell.spec.training for cell in expand(read_experiment(name))]
    decays = {(each.weight_decay, each.activation_weight_decay) for each in training}
    assert decays == {(5e-4, 5e-4), (5e-4, 0.0)}
    assert {float(row["activation_weight_decay"]) for row in read_published(read_experiment(name), name)} == {5e-4}


def test_the_convergence_figure_and_top_5_of_cifar100():
    """Six activations are drawn in the paper; of two of them top-5 is printed, in six networks."""
    read = read_experiment("cifar100")
    assert {"pau", "selu", "relu", "leaky_relu", "prelu", "arelu"} == set(read.axes["activation"]) - set(
        read.report.controls
    )
    assert read.report.other_metrics == ("test/accuracy_top5",)
    top5 = [row for row in read_published(read, "cifar100") if row["metric"] == "test/accuracy_top5"]
    assert len(top5) == 12


CURVES = {
    "mnist_curves": {"train/loss", "test/accuracy"},  # figures mnistplot, mnistplot_large, mnistplot_small
    "cifar100": {"validation/accuracy"},
    "cifar100_curves": {"test/accuracy"},  # figure converge
    "segmentation": {"train/loss_by_step", "validation/loss"},  # figure seg
    "segmentation_sample": {"train/loss_by_step", "validation/loss"},
    "arelu_init": {"validation/accuracy"},  # figure alpha_beta
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_of_the_papers_figures_are_drawn(name: str):
    assert set(read_experiment(name).report.curves) >= CURVES[name]


CONFIRMATORY = {
    "arelu_init_alpha": (10, 1, None),
    "glyphs_frozen": (30, 3, "arelu"),
    "glyphs_gain_twins": (10, 3, "arelu"),
    "glyphs_init": (20, 3, "arelu"),
    "glyphs_outer_rates": (5, 3, "arelu"),
    "glyphs_own_rates": (50, 3, "arelu"),
    "glyphs_splits": (3, 3, "arelu"),
    "glyphs_unit_rates": (20, 3, "arelu_unit"),
    "maml_mnist_clip": (20, 3, "arelu"),
    "mnist_init": (10, 1, "arelu"),
    "mnist_unit_rates": (20, 3, "arelu_unit"),
}


@pytest.mark.parametrize("name", CONFIRMATORY)
def test_confirmatory_experiments_say_beforehand_what_is_judged_on_seeds_that_no_other_saw(name: str):
    read = read_experiment(name)
    seeds, margin, primary = CONFIRMATORY[name]
    assert (len(read.seeds), read.report.margin, read.report.primary) == (seeds, margin, primary)
    assert min(read.seeds) >= 100  # exploratory files have 0 to 4
    assert read.question.endswith("?")
    assert "written here before the first run" in catalog.find("experiment", name).read_text()


def test_each_arm_at_the_rate_that_other_seeds_chose():
    """The two commands in the head of the file: 5 arms with 50 seeds; rates as the shipped runs validate best."""
    read = read_experiment("glyphs_own_rates")
    runs = pd.read_csv(Path(__file__).parents[2] / "docs" / "results" / "glyphs_rates_runs.csv")
    scores = runs.pivot_table(index="activation", columns="inner_lr", values="validation/accuracy", aggfunc="mean")
    best = scores.idxmax(axis=1).to_dict()
    head = catalog.find("experiment", "glyphs_own_rates").read_text()
    commands = [line.partition("--only ")[2].split() for line in head.splitlines() if "--only" in line]
    cells = [cell for words in commands for cell in expand(read, only=parse_only(words))]
    assert len(cells) == 250
    assert {(cell.values["activation"], cell.values["inner_lr"]) for cell in cells} == set(best.items())


def test_scripts_held_out_differ_from_draw_to_draw():
    """Ten splits of the file are ten divisions of whole scripts, none of them the published one."""
    cells = expand(read_experiment("glyphs_splits"), only={"activation": ["relu"]}, seeds=[100])
    sections = [cell.spec.data for cell in cells]  # type: ignore[attr-defined]
    glyphs = data.load("glyphs")
    tested = [divide(glyphs, section).indices["test"] for section in sections]
    assert {len(numbers) for numbers in tested} == {249 * 20}
    assert len({tuple(numbers.tolist()) for numbers in tested}) == 10


def test_an_axis_more_is_another_comparison():
    """Its cells may be the same runs; those of other seeds would not know their place on the new axis."""
    one = experiment(grid={"network": {"activation": ["relu", "arelu"]}}, settings={"training": {"inner_lr": 0.1}})
    two = experiment(grid={"network": {"activation": ["relu", "arelu"]}, "training": {"inner_lr": [0.1]}}, settings={})
    assert [cell.spec.identity for cell in expand(one)] == [cell.spec.identity for cell in expand(two)]
    assert comparison_hash(one) != comparison_hash(two)


def test_only_and_seeds_by_words():
    assert parse_only(["lr=1e-4", "activation=relu,arelu", "lr=0.1"]) == {
        "lr": ("1e-4", "0.1"),
        "activation": ("relu", "arelu"),
    }
    for word in ("activation", "activation="):
        with pytest.raises(InputError, match="not of the form"):
            parse_only([word])
    with pytest.raises(InputError, match="`only` shots: no such axis; axes here: activation, inner_lr"):
        expand(experiment(), only={"shots": ("1",)})
    with pytest.raises(InputError, match="no such value; known: relu, arelu"):
        expand(experiment(), only={"activation": ("arleu",)})


def test_numbers_are_compared_as_numbers():
    assert is_same(0.0001, "1e-4")
    assert is_same(5, "5.0")
    assert is_same(True, "true")
    assert not is_same("1", "1.0")
    assert not is_same(1.0, "relu")


SUPERVISED = kinds.entry("classify").lengths


def test_lengths_and_schedule_are_scaled_rounding_up():
    """0.1 of 25 epochs are 2.5, so 3; of the milestones 10 and 20: 1 and 2; of 1 epoch: 1."""
    values = {"training": {"epochs": 25, "milestones": (10, 20), "warmup_epochs": 1, "lr": 0.1}, "seed": 5}
    scaled = scale_lengths(values, SUPERVISED, 0.1)
    assert scaled == {"training": {"epochs": 3, "milestones": [1, 2], "warmup_epochs": 1, "lr": 0.1}, "seed": 5}
    assert values["training"]["epochs"] == 25


def test_zero_and_absence_stay():
    training = {"iterations": 100, "halve_lr_every": None, "warmup_iterations": 0}
    assert scale_lengths({"training": training}, kinds.entry("few_shot").lengths, 0.5)["training"] == {
        "iterations": 50,
        "halve_lr_every": None,
        "warmup_iterations": 0,
    }
    epochs = {"training": {"epochs": 4, "freeze_epochs": 0, "milestones": ()}}
    assert scale_lengths(epochs, SUPERVISED, 0.5) == {"training": {"epochs": 2, "freeze_epochs": 0, "milestones": []}}


def test_no_float_dust():
    """0.07 * 100 is 7.000000000000001 in floating point; the budget is 7 iterations, not 8."""
    assert scale_lengths({"training": {"epochs": 100}}, SUPERVISED, 0.07)["training"]["epochs"] == 7


def test_lengths_of_a_transfer():
    values = {"pretraining": {"pretrain_epochs": 20}, "training": {"epochs": 20}, "report_epochs": (5, 10, 20)}
    assert scale_lengths(values, kinds.entry("transfer").lengths, 0.1) == {
        "pretraining": {"pretrain_epochs": 2},
        "training": {"epochs": 2},
        "report_epochs": [1, 2],
    }
    assert scale_metric("test/finetune_20", 0.1) == "test/finetune_2"
    assert scale_metric("test/finetune_20", 1.0) == "test/finetune_20"


def test_a_length_that_is_an_axis_is_not_scaled():
    """2 of 4 iterations would be called 4 in tables."""
    grid = {"network.activation": ["relu", "arelu"], "training.iterations": [4, 8]}
    varied = experiment(grid=grid, settings={})
    with pytest.raises(InputError, match=r"would scale training.iterations, .* an axis .*: `only` iterations=..."):
        expand(varied, budget=0.5)
    assert len(expand(varied)) == 12


def test_an_axis_of_an_earlier_stage_stays_where_the_training_is_scaled():
    """A quarter of 100 epochs of fine-tuning after 5, 10 and 20 of pre-training."""
    cells = expand(read_experiment("transfer_mnist_to_svhn"), seeds=[0], budget=0.25)
    lengths = {(cell.values["pretrain_epochs"], *training_lengths(cell)) for cell in cells}
    assert lengths == {(epochs, epochs, 25, (2, 3, 5, 25)) for epochs in (5, 10, 20)}
    assert {cell.share for cell in cells} == {0.25}


def training_lengths(cell: Cell) -> tuple[int, int, tuple[int, ...]]:
    spec = cell.spec
    assert isinstance(spec, TransferSpec)
    return spec.pretraining.pretrain_epochs, spec.training.epochs, spec.report_epochs


def test_the_readings_of_the_transfer_table():
    """The text: 100 epochs after 5, 10, 20 of pre-training. The caption: 5, 10, 20 epochs after 20, and no figures."""
    text, caption = (read_experiment(f"transfer_mnist_to_svhn{end}") for end in ("", "_caption"))
    assert {training_lengths(cell) for cell in expand(text)} == {(n, 100, (5, 10, 20, 100)) for n in (5, 10, 20)}
    assert {training_lengths(cell) for cell in expand(caption)} == {(20, 20, (5, 10, 20))}
    assert read_published(caption, "transfer_mnist_to_svhn_caption") == []
    printed = {5: 76.68, 10: 78.12, 20: 78.48}
    table = pd.DataFrame(read_published(text, "transfer_mnist_to_svhn"))
    for epochs, value in printed.items():
        found = published_values(table, {"activation": "arelu", "pretrain_epochs": epochs})
        by_metric = {metric: figure for (metric, _, _), figure in found.items()}
        assert by_metric == {"test/finetune_100": value, "test/no_pretrain": 24.95, "test/no_finetune": 31.91}


@pytest.mark.parametrize("budget", [0.0, -0.5, 1.5, float("nan")])
def test_what_is_no_share(budget: float):
    with pytest.raises(InputError, match="must be above 0 and at most 1"):
        expand(experiment(), budget=budget)


@pytest.mark.parametrize("count", [1, 2, 5, 12, 20])
def test_shards_are_all_cells_each_once(count: int):
    cells = expand(experiment())
    shards = [shard_of(cells, (number, count)) for number in range(1, count + 1)]
    identities = [cell.spec.identity for shard in shards for cell in shard]
    assert sorted(identities) == sorted(cell.spec.identity for cell in cells)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_does_not_depend_on_the_order_of_the_file():
    turned = {"training": {"inner_lr": [0.01, 0.1]}, "network": {"activation": ["arelu", "relu"]}}

    def identities(cells: list[Cell]) -> set[str]:
        return {cell.spec.identity for cell in shard_of(cells, (2, 3))}

    cells = expand(experiment())
    assert identities(cells) == identities(expand(experiment(grid=turned, seeds=[2, 0, 1])))
    chosen = shard_of(cells, (2, 3))
    assert chosen == [cell for cell in cells if cell in chosen]  # run in the order of the cells


@pytest.mark.parametrize("text", ["0/8", "9/8", "a/b", "2", "2/", "-1/3", "1/0", "1.0/2", "2/8/9", ""])
def test_what_is_no_shard(text: str):
    with pytest.raises(InputError, match="is not of the form NUMBER/COUNT with 1 <= NUMBER <= COUNT, such as 2/8"):
        parse_shard(text)
