from pathlib import Path

import pytest

from arelu_meta.comparison.experiment import Experiment, read_experiment, read_published
from arelu_meta.comparison.grid import comparison_hash, expand
from arelu_meta.console import catalog
from arelu_meta.console.flags import validated
from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from tests.comparison import tiny

BUILT_IN = {
    "adaptation_omniglot": 15,
    "arelu_init": 80,
    "cifar10": 330,
    "cifar100": 150,
    "gain_controls": 30,
    "glyphs": 15,
    "glyphs_rates": 100,
    "inner_rates": 60,
    "learning_rates": 175,
    "maml_digits": 15,
    "maml_mnist": 150,
    "mnist_20_epochs": 880,
    "mnist_first_epoch": 920,
    "segmentation": 25,
    "transfer_digits": 15,
    "transfer_mnist_to_svhn": 45,
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


def test_published_figures_must_fit_the_grid(tmp_path: Path):
    path = tiny.write(tmp_path, ("[report]\n", '[report]\npublished = ["p.csv"]\n'))
    mine = read_experiment(str(path))
    with pytest.raises(InputError, match=r"p\.csv do not exist"):
        read_published(mine, str(path))
    (tmp_path / "published").mkdir()
    table = tmp_path / "published" / "p.csv"
    table.write_text("activation,value\nrelu,1\n")
    with pytest.raises(InputError, match="it must have activation, metric, protocol, source, value"):
        read_published(mine, str(path))
    table.write_text("activation,metric,value,protocol,source\nrelu,test/accuracy,1.5,paper,book\n")
    assert [row["value"] for row in read_published(mine, str(path))] == ["1.5"]


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


def test_published_figures_are_the_papers():
    """Spot checks against the printed tables of arXiv 2006.13858."""

    def value(name: str, **where: str) -> float:
        rows = read_published(read_experiment(name), name)
        (found,) = [row for row in rows if where.items() <= row.items()]
        return float(found["value"])

    assert value("maml_mnist", activation="arelu", shots="1") == 92.50
    assert value("maml_mnist", activation="gelu", shots="5") == 69.37
    assert value("transfer_mnist_to_svhn", activation="arelu", metric="test/finetune_20") == 78.48
    assert value("cifar100", activation="arelu", backbone="shufflenet_v2", metric="test/accuracy") == 69.63
    assert value("segmentation", activation="relu") == 90.77
    assert value("gain_controls", activation="arelu") == 47.78


def test_an_axis_more_is_another_comparison():
    """Its cells may be the same runs; those of other seeds would not know their place on the new axis."""
    one = experiment(grid={"network": {"activation": ["relu", "arelu"]}}, settings={"training": {"inner_lr": 0.1}})
    two = experiment(grid={"network": {"activation": ["relu", "arelu"]}, "training": {"inner_lr": [0.1]}}, settings={})
    assert [cell.spec.identity for cell in expand(one)] == [cell.spec.identity for cell in expand(two)]
    assert comparison_hash(one) != comparison_hash(two)


def test_an_empty_table_among_the_settings_clears_the_tasks():
    options = {"network": {"activation_options": {}}}
    assert experiment(settings=options).settings == {"network.activation_options": {}}


def test_a_name_that_no_store_can_be_asked_for():
    with pytest.raises(InputError, match=r"the name .it's. has more than letters, digits, _ . and -; rename"):
        experiment(experiment="it's")
