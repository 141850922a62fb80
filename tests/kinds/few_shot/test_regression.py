"""Regression from end to end: sine waves, what is stored of them, and the picture that MAML was published with."""

import math
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from arelu_meta import data
from arelu_meta.console import catalog
from arelu_meta.errors import DivergedError, InputError
from arelu_meta.kinds import run
from arelu_meta.kinds.execution import Execution
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.spec import FewShotSpec
from arelu_meta.maml import main
from tests.tiny_runs import MLFLOW_WARNINGS

pytestmark = [pytest.mark.usefixtures("store"), MLFLOW_WARNINGS]
RATE = 0.001
TINY = {
    "training": {"iterations": 3, "meta_batch": 4, "test_steps": 5},
    "evaluation": {"test_episodes": 6, "validation_episodes": 3, "validate_every": 1},
}


def sinusoid(**sections: dict[str, object]) -> FewShotSpec:
    values = catalog.read("task", "sinusoid")
    for changes in (TINY, sections):
        values |= {name: {**values.get(name, {}), **given} for name, given in changes.items()}
    return FewShotSpec.model_validate(values)


def test_a_run_and_what_it_leaves():
    """Metrics by step are means over the stored episodes; the stored model adapts as the network does, by hand."""
    spec = sinusoid(network={"activation": "arelu"}, training={**TINY["training"], "inner_lr": RATE})
    result = run(spec, Execution(device="cpu"))
    assert result.episodes.shape == (6, 6)
    client = MlflowClient()
    stored = client.get_run(result.run_id).data
    assert stored.metrics["test/mse"] == pytest.approx(result.episodes[:, -1].mean())
    for step in range(6):
        assert stored.metrics[f"test/mse_step_{step}"] == pytest.approx(result.episodes[:, step].mean())
    assert spec.metrics() <= set(stored.metrics)
    assert not any("accuracy" in name or "collapsed" in name for name in stored.metrics)
    best = min(entry.value for entry in client.get_metric_history(result.run_id, "validation/mse"))
    chosen = result.selected_iteration
    assert dict(result.curves["validation"])[chosen] == pytest.approx(best)
    assert "figures/adapted_curves.png" in {a.path for a in client.list_artifacts(result.run_id, "figures")}

    model = FewShotModel.load(result.run_id)
    x, y = torch.linspace(-4, 4, 10), torch.linspace(-4, 4, 10).sin()
    network = result.network
    parameters = {name: value.detach().clone().requires_grad_() for name, value in network.named_parameters()}
    for _ in range(5):
        error = (torch.func.functional_call(network, parameters, x.view(-1, 1)).flatten() - y).square().mean()
        slopes = torch.autograd.grad(error, list(parameters.values()))
        parameters = {n: p - RATE * s for (n, p), s in zip(parameters.items(), slopes, strict=True)}
    expected = torch.func.functional_call(network, parameters, torch.tensor([[0.5], [2.0]])).flatten()
    adapted = model.adapt(x.view(-1, 1).tolist(), y.tolist())
    assert torch.allclose(adapted.values([[0.5], [2.0]]), expected, atol=1e-5)
    with pytest.raises(InputError, match="answers with real numbers, not with classes"):
        adapted.probabilities([[0.5]])
    served = mlflow.pyfunc.load_model(f"runs:/{result.run_id}/model")
    with pytest.raises(Exception, match=r"this model is of a regression; use FewShotModel\.load"):
        served.predict({"support_x": [[0.0]], "support_y": [1.0], "query_x": [[0.0]]})


def test_a_network_that_diverges_in_tests_is_reported(recwarn: pytest.WarningsRecorder):
    """AReLU starts with the gain of three ReLUs: from an untrained network, steps of 0.1 go far beyond any float."""
    with pytest.raises(DivergedError, match="the answers to 3 of 3 episodes are not finite; lower `inner_lr`"):
        run(sinusoid(network={"activation": "arelu"}, training={"inner_lr": 0.1}), Execution(device="cpu"))
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_the_report(capsys: pytest.CaptureFixture[str]):
    flags = "--task sinusoid --iterations 2 --meta-batch 2 --test-episodes 4 --validation-episodes 2 --device cpu"
    assert main(flags.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "relu in mlp: 10-shot regression maml on sinusoid, protocol sound, seed 0"
    assert lines[1].startswith("  test mse ")
    steps = [line.split("  ")[1] for line in lines[2:8]]
    assert steps == [
        "after 0 steps",
        "after 1 step",
        "after 2 steps",
        "after 3 steps",
        "after 5 steps",
        "after 10 steps",
    ]
    assert "  held out        functions: none of the test functions occurs in training" in lines
    assert "  features        as stored" in lines
    assert not any("chance" in line or "accuracy" in line for line in lines)


BAD = [
    ("--ways 2", "with --loss mse an episode is one function; set --ways to 1"),
    ("--method protonet", "method 'protonet' compares features of classes; with --loss mse use --method maml"),
    ("--protocol paper", "with --loss mse use --protocol sound"),
    ("--data digits --split by_image --backbone mlp", "digits/train has classes and no real targets"),
    ("--loss cross_entropy --ways 5", "sinusoid/train has real targets, one function a class; set --loss to mse"),
    ("--backbone conv4", "holds vectors of 1 features, and 'conv4' takes images; set --backbone to mlp"),
    ("--image-size 28", "holds vectors of 1 features, and --image-size 28 is of images; leave it out"),
]


@pytest.mark.parametrize(("flags", "message"), BAD)
def test_one_line_for_what_does_not_fit(flags: str, message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["--task", "sinusoid", *flags.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_points_of_ones_own(tmp_path: Path):
    """Rows of two features with a target each; `y` says which function they belong to."""
    random = np.random.default_rng(0)
    x, which = random.normal(size=(300, 2)), np.repeat(np.arange(15), 20)
    slopes = random.normal(size=(15, 2))
    np.savez(tmp_path / "planes.npz", x=x, y=which, targets=(slopes[which] * x).sum(1))
    mine = data.load(tmp_path / "planes.npz")
    assert (mine.channels, mine.targets.shape, len(mine.class_names)) == (2, (300, 1), 15)
    section = {"dataset": str(tmp_path / "planes.npz"), "split": "by_class", "test_classes": 4, "validation_classes": 3}
    result = run(sinusoid(data=section, episode={"test_queries": 10}), Execution(device="cpu"))
    assert np.isfinite(result.episodes).all()


@pytest.mark.slow
def test_maml_adapts_in_one_step_and_joint_training_does_not():
    """The figure of Finn et al. 2017 at a small part of its budget, and what the best constant would have.

    The mean of y^2 over functions is E[a^2] / 2 = (5^3 - 0.1^3) / (3 * 4.9) / 2 = 4.25: what answering 0 costs.
    """
    budget = {
        "training": {"iterations": 2500, "test_steps": 10},
        "evaluation": {"test_episodes": 300, "validate_every": 500},
    }
    found = {}
    for method in ("maml", "joint"):
        sections = {**budget, "training": {**budget["training"], "meta_batch": 25, "method": method}}
        found[method] = run(sinusoid(**sections), Execution(device="cpu", threads=1)).episodes.mean(0)
    zero = (5**3 - 0.1**3) / (3 * 4.9) / 2
    assert math.isclose(zero, 4.25, abs_tol=0.01)
    assert found["maml"][1] < 0.4 * found["maml"][0]
    assert found["joint"][1] > 0.6 * found["joint"][0]
    assert found["maml"][1] < found["joint"][10]
    assert found["joint"][0] < zero
