"""The experiment file: what it may say, and the published figures beside it."""

from pathlib import Path

import pytest

from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.experiment import ReportSection, read_experiment, read_published
from arelu_meta.errors import InputError
from tests.comparison import tiny
from tests.comparison.test_cells import experiment


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "p.csv",
            b"activation,metric,value,protocol,source\n\xff,x,1,sound,y\n",
            r"p\.csv is damaged \(Unicode",
        ),
        ("../p.csv", b"secret\n", r"p\.csv leads out of"),
        ("p" * 300, b"", "File name too long|do not exist"),  # the latter from Python 3.14 on
    ],
)
def test_published_figures_of_a_stranger_are_one_line(tmp_path: Path, name: str, content: bytes, message: str):
    path = tiny.write(tmp_path, ("[report]\n", f'[report]\npublished = ["{name}"]\n'))
    (tmp_path / "published").mkdir()
    if content:
        (tmp_path / "published" / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read_published(read_experiment(str(path)), str(path))
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_published_figures_are_the_papers():
    """Spot checks against the printed tables of arXiv 2006.13858."""

    def value(name: str, **where: str) -> float:
        rows = read_published(read_experiment(name), name)
        (found,) = [row for row in rows if where.items() <= row.items()]
        return float(found["value"])

    assert value("maml_mnist", activation="arelu", shots="1") == 92.50
    assert value("maml_mnist", activation="gelu", shots="5") == 69.37
    assert value("transfer_mnist_to_svhn", activation="arelu", pretrain_epochs="20") == 78.48
    assert value("cifar100", activation="arelu", backbone="shufflenet_v2", metric="test/accuracy") == 69.63
    assert value("segmentation", activation="relu") == 90.77
    assert value("gain_controls", activation="arelu") == 47.78


@pytest.mark.parametrize(
    ("name", "words", "place"),
    [
        ("maml_mnist", "best training batch", "github.com/densechen/AReLU at d15abfb, meta_mnist.py"),
        ("mnist_20_epochs", "best epoch of 20 on the test images", "github.com/densechen/AReLU at d15abfb, utils.py"),
        ("transfer_mnist_to_svhn", "best epoch", "github.com/densechen/AReLU at d15abfb, utils.py and main_mnist.sh"),
        ("segmentation", "largest component", "github.com/mateuszbuda/brain-segmentation-pytorch at 11e6c78"),
    ],
)
def test_what_was_read_from_code_cites_it(name: str, words: str, place: str):
    """Figures are the paper's; how they were measured is not said there."""
    rows = read_published(read_experiment(name), name)
    assert all(row["source"].startswith("Chen et al. 2020, arXiv 2006.13858, ") for row in rows)
    assert all(place in row["source"] for row in rows if words in row["protocol"])
    assert any(words in row["protocol"] for row in rows)


def test_an_empty_table_among_the_settings_clears_the_tasks():
    options = {"network": {"activation_options": {}}}
    assert experiment(settings=options).settings == {"network.activation_options": {}}


def test_a_name_that_no_store_can_be_asked_for():
    with pytest.raises(InputError, match=r"the name .it's. has more than letters, digits, _ . and -; choose"):
        experiment(experiment="it's")


def test_the_former_name_of_other_metrics_is_an_unknown_key(tmp_path: Path):
    path = tiny.write(tmp_path, ("[report]\n", '[report]\nfurther = ["train/accuracy"]\n'))
    with pytest.raises(InputError, match=r"\[report\]: unknown key 'further', known: .*other_metrics"):
        read_experiment(str(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('primary = "arleu"', r"unknown primary arm of the report 'arleu'.*arelu"),
        ('primary = "relu"', "primary = 'relu' is the baseline of the report; name another arm"),
        ("primary = 3", r"\[report\]: primary = 3 must be a valid string"),
        ("margin = -1", r"\[report\]: margin = -1 must be greater than 0"),
        ("margin = 0", r"\[report\]: margin = 0 must be greater than 0"),
        ("margin = inf", r"\[report\]: margin = inf must be a finite number"),
        ('margin = "wide"', r"\[report\]: margin = 'wide' must be a valid number"),
        ("chance = 100", r"\[report\]: chance = 100 must be less than 100"),
        ("chance = -5", r"\[report\]: chance = -5 must be at least 0"),
        ("chance = [10]", r"\[report\]: chance = \[10\] must be a valid number"),
        ("marign = 1", r"\[report\]: unknown key 'marign', did you mean 'margin'"),
    ],
)
def test_how_a_report_judges_is_one_line_when_it_is_wrong(tmp_path: Path, lines: str, message: str):
    path = tiny.write(tmp_path, ("[report]\n", f"[report]\n{lines}\n"))
    with pytest.raises(InputError, match=message) as refused:
        read_experiment(str(path))
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_without_them_loads_and_has_the_same_cells(tmp_path: Path):
    """What judges is no part of a cell: an old file and a new one share their runs."""
    old = read_experiment(str(tiny.write(tmp_path, name="old")))
    assert (old.report.primary, old.report.margin, old.report.chance) == (None, None, None)
    keys = 'primary = "arelu"\nmargin = 2.5\nchance = 50\nother_metrics = ["test/accuracy_area", "test/steps_to_80"]\n'
    new = read_experiment(str(tiny.write(tmp_path, ("[report]\n", f"[report]\n{keys}"), name="new")))
    assert (new.report.primary, new.report.margin, new.report.chance) == ("arelu", 2.5, 50.0)
    assert [cell.spec.identity for cell in expand(new)] == [cell.spec.identity for cell in expand(old)]


def test_a_level_that_runs_do_not_log_is_refused():
    with pytest.raises(InputError, match="unknown other metric of the report 'test/steps_to_85'; did you mean"):
        expand(experiment(report=ReportSection(other_metrics=("test/steps_to_85",))))
