import pytest
import torch
from torch import nn

from arelu_meta.activations.arelu import AReLU
from arelu_meta.benchmarks import activation
from arelu_meta.benchmarks.activation import AuthorsFormula
from arelu_meta.errors import RunError


def test_rows_are_relative_to_ours(monkeypatch):
    monkeypatch.setattr(activation, "SHAPE", (2, 3, 4, 4))
    monkeypatch.setattr(activation.shutil, "which", lambda _: None)  # compiling takes half a minute
    (report,) = activation.bench_activation()
    assert [row.name for row in report.rows] == ["AReLU", "nn.ReLU", "nn.PReLU", "AReLU, authors' formula"]
    assert report.rows[0].ratio == 1.0
    assert report.rows[1].note == "1.00 of nn.ReLU"


def test_the_authors_formula_by_hand():
    """At alpha 0.9 and beta 2: 0.9 below zero, 1 + 0.880797 above."""
    out = AuthorsFormula()(torch.tensor([-2.0, 1.0]))
    assert out.tolist() == pytest.approx([-1.8, 1.880797])


def test_a_different_function_is_refused():
    x = torch.randn(3, 4)
    with pytest.raises(RunError, match="differ"):
        activation.check_same_function(AReLU(), nn.PReLU(), x, torch.ones_like(x))
