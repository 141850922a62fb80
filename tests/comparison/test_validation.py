"""What the cells name is found and built before the first runs; nothing is started where something is wrong."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from arelu_meta import data
from arelu_meta.compare import main
from arelu_meta.comparison.cells import expand
from arelu_meta.comparison.experiment import read_experiment
from arelu_meta.comparison.runner import Plan, run_plan
from arelu_meta.comparison.validation import check_cells
from arelu_meta.errors import InputError
from arelu_meta.kinds import networks
from arelu_meta.trust import TRUST
from tests.comparison import tiny
from tests.comparison.test_cells import experiment
from tests.tiny_runs import MLFLOW_WARNINGS

OWN = "tests.own_parts"
SMALL = {"episode": {"ways": 2, "queries": 2, "test_queries": 3}, "data": {"dataset": f"{OWN}:stripes"}}


def refused(report: dict[str, object] | None = None, **changes: object) -> list[str]:
    made = experiment(settings=changes.pop("settings", SMALL), report=report or {}, **changes)
    with pytest.raises(InputError) as raised:
        check_cells(expand(made))
    return str(raised.value).splitlines()


def test_parts_of_ones_own_pass():
    grid = {"network": {"backbone": ["mnist_conv", f"{OWN}:TinyNet"], "activation": ["relu", f"{OWN}:Squareplus"]}}
    settings = {"episode": {"ways": 2}, "training": {"method": f"{OWN}:slow_maml", "engine": "higher"}}
    check_cells(expand(experiment(grid=grid, settings=settings)))


def test_networks_of_others_in_episodes():
    grid = {"network": {"activation": ["relu", "own"]}}
    check_cells(expand(experiment(grid=grid, settings={"network": {"backbone": "timm/test_resnet"}})))
    with pytest.raises(InputError, match="unknown model 'timm/test_resnett'"):
        check_cells(expand(experiment(grid=grid, settings={"network": {"backbone": "timm/test_resnett"}})))


def test_every_distinct_thing_that_is_wrong_is_one_line():
    """Two activations for each of three networks: the wrong network is told once, the missing activation once."""
    backbones = ["mnist_conv", f"{OWN}:TinyNett", f"{OWN}:wrong_logits"]
    grid = {"network": {"backbone": backbones, "activation": ["relu", "arelu", f"{OWN}:Cubeplus"]}}
    settings = {"episode": {"ways": 2}, "data": {"dataset": "digits"}}
    assert refused(grid=grid, settings=settings) == [
        f"mnist_conv activation={OWN}:Cubeplus: unknown attribute of {OWN} 'Cubeplus'; did you mean 'Squareplus'?",
        f"{OWN}:TinyNett activation=relu: unknown attribute of {OWN} 'TinyNett'; did you mean 'TinyNet'?",
        f"{OWN}:wrong_logits activation=relu: backbone '{OWN}:wrong_logits' gives (2, 3) for 2 images; "
        "it must give logits (2, 2)",
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"network": {"backbone_options": {"widht": 3}}}, "unknown option of backbone 'mnist_conv': 'widht'"),
        ({"network": {"activation_options": {"alfa": 3}}}, "unknown option of activation 'relu': 'alfa'"),
        ({"network": {"backbone": "tests.nowhere:Net"}}, "cannot import 'tests.nowhere'"),
        ({"episode": {"ways": 11}}, "digits has 10 classes, but ways = 11; lower `ways`"),
        ({"network": {"backbone": f"{OWN}:without_activation"}}, "takes no argument 'activation'"),
        ({"data": {"dataset": f"{OWN}:strips"}}, f"unknown attribute of {OWN} 'strips'; did you mean 'stripes'?"),
        ({"data": {"dataset": f"{OWN}:stripes", "dataset_options": {"sied": 9}}}, "unknown option of"),
        ({"data": {"dataset": f"{OWN}:stripes"}}, "mnist_conv takes images of 28 to 35 pixels"),
        ({"data": {"dataset": f"{OWN}:not_a_learner"}}, "TypeError: not_a_learner() missing 1 required"),
        ({"data": {"dataset": f"{OWN}:leaves"}}, "SystemExit: 0"),
        ({"data": {"dataset": "some/where"}}, "no file or folder 'some/where'"),
        ({"training": {"method": f"{OWN}:not_a_learner"}}, "not an arelu_meta.learners.learner.Learner"),
        (
            {"training": {"method": "protonet"}, "network": {"backbone": "torch.nn:Linear"}},
            "takes no argument 'activation'",
        ),
    ],
)
def test_what_is_wrong_is_found(section: dict[str, object], message: str):
    settings = {"episode": {"ways": 2}} | section
    (line,) = refused(settings=settings, grid={"network": {"activation": ["relu"]}})
    assert line.startswith("relu: ")
    assert message in line


def test_a_method_of_ones_own_that_cannot_be_imported_is_no_spec():
    with pytest.raises(InputError, match=rf"unknown attribute of {OWN} 'slow'"):
        expand(experiment(settings={"training": {"method": f"{OWN}:slow"}}))


@pytest.mark.parametrize(
    ("task", "section", "message"),
    [
        ("digits_classify", {"fit": {"image_size": 16}}, "mnist_conv takes images of 28 to 35 pixels"),
        ("digits_to_street", {"domains": {"target": "streeet/"}}, "no file or folder 'streeet/'"),
        (
            "phantom",
            {"network": {"backbone": f"{OWN}:TinyNet"}},
            "unknown option of backbone 'tests.own_parts:TinyNet'",
        ),
        ("finetune", {"network": {"model": "resnet81"}}, "unknown model 'resnet81'"),
        ("finetune", {"network": {"model": "tests.tiny_networks:tini"}}, "did you mean 'tiny'?"),
        ("finetune", {"network": {"model_options": {"widht": 3}}}, "unknown option of backbone 'mnist_conv': 'widht'"),
    ],
)
def test_every_kind_is_looked_at(task: str, section: dict[str, object], message: str):
    metric = {"digits_to_street": "test/finetune_5", "phantom": "test/dice"}.get(task, "test/accuracy")
    grid = {"network": {"activation": ["relu"]}}
    (line,) = refused({"metric": metric}, task=task, settings=section, grid=grid, seeds=[0])
    assert message in line


def test_a_network_is_built_once_however_many_cells_have_it(monkeypatch: pytest.MonkeyPatch):
    """Three seeds and two learning rates: two activations are two networks, and the set is read once."""
    built, read = [], []
    original, load = networks.check_few_shot, data.load
    monkeypatch.setattr(networks, "check_few_shot", lambda spec, images: (built.append(spec), original(spec, images)))
    monkeypatch.setattr(data, "load", lambda name, **options: (read.append(name), load(name, **options))[1])
    cells = expand(experiment(settings=SMALL | {"network": {"backbone": f"{OWN}:TinyNet"}}))
    assert len(cells) == 12
    check_cells(cells)
    assert [spec.network.activation for spec in built] == ["relu", "arelu"]
    assert read == [f"{OWN}:stripes"]


def test_a_set_that_would_be_downloaded_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data._REGISTRY, "_entries", dict(data._REGISTRY._entries))
    called = []
    data.register("remote", bundled=False)(lambda root: called.append(root))
    settings = {"data": {"dataset": "remote"}, "network": {"backbone_options": {"widht": 3}}}
    assert "unknown option of backbone 'mnist_conv': 'widht'" in refused(settings=settings)[0]
    check_cells(expand(experiment(settings={"data": {"dataset": "mnist"}})), root=str(tmp_path))
    assert called == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--dry-run"], []])
def test_the_command_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]):
    changes = ('["relu", "arelu"]', f'["relu", "{OWN}:Cubeplus"]\nnetwork.backbone = ["mnist_conv", "{OWN}:TinyNett"]')
    path = tiny.write(tmp_path, changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
        assert main([str(path), *flags, "--trust", "tests"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["error", "error"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_dry_run_of_ours_loads_no_mlflow(python: Callable[..., subprocess.CompletedProcess[str]]):
    code = "import sys; from arelu_meta.compare import main; main(['maml_digits', '--dry-run']); print(*sys.modules)"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "mlflow" not in done.stdout.splitlines()[-1].split()


@MLFLOW_WARNINGS
@pytest.mark.usefixtures("store")
def test_a_comparison_of_parts_of_ones_own_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Network, activation, method and data from outside, with options, in a file: every cell has a result."""
    methods = f'training.method = ["{OWN}:slow_maml", "{OWN}:HalfProtoNet"]'
    path = tiny.write(
        tmp_path,
        ('["relu", "arelu"]', f'["relu", "{OWN}:Squareplus"]\n{methods}'),
        ("[settings]", f'[settings]\nnetwork = {{ backbone = "{OWN}:TinyNet", backbone_options = {{ width = 6 }} }}'),
        ("[settings]", f'[settings]\ndata = {{ dataset = "{OWN}:stripes", dataset_options = {{ side = 9 }} }}'),
        ("seeds = [0, 1]", "seeds = [0]"),
    )
    monkeypatch.setenv(TRUST, "tests")
    made = read_experiment(str(path))
    done = run_plan(Plan(experiment=made, cells=expand(made)), tiny.InProcess())
    assert done.missing == ()
    assert len(done.report.analysis.findings.runs) == 4
