"""Every module of torch.nn: is its meta-gradient exact when episodes are vectorised, one by one, or not to be had?

The gradient is held against central differences of the query loss in a random direction, on either way by itself.
docs/meta_learning.md has the table that comes out.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.engines.func_engine import FuncEngine, OneByOne
from arelu_meta.learners.known_layers import EXACT, EXACT_BY_KERNELS, is_known
from tests.learners.small_problems import episodes, gradients
from tests.learners.torch_layers import CASES, NO_LAYERS, names, probe

NO_RULE = {"AdaptiveLogSoftmaxWithLoss", "Bilinear", "FractionalMaxPool2d", "FractionalMaxPool3d", "KLDivLoss"}
NO_RULE |= {"MarginRankingLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "SoftMarginLoss", "TripletMarginLoss"}
ONE_BY_ONE = NO_RULE | {"GRU", "GRUCell", "GaussianNLLLoss", "LSTM", "LSTMCell", "RNN", "RNNCell", "RReLU"}
REFUSED = {"CTCLoss", "CrossMapLRN2d", "EmbeddingBag", "MultiLabelMarginLoss", "MultiMarginLoss"}
REFUSAL = r"twice .* use `method='fomaml'`"
VECTORISED = set(CASES) - ONE_BY_ONE - REFUSED


def error_of_gradient(name: str, *, vectorise: bool) -> float:
    """Error of the meta-gradient along a random direction, relative to the slope; random layers draw the same."""
    network, batch = probe(name), episodes()
    learner = learners.build("maml", network, inner_lr=0.3, inner_steps=2)
    learner.engine = FuncEngine(vectorise=vectorise)
    torch.manual_seed(5)
    learner.meta_step(batch, progress=0.0)
    found = gradients(network)
    random = torch.Generator().manual_seed(3)
    steps = {n: 1e-6 * torch.randn(p.shape, dtype=p.dtype, generator=random) for n, p in network.named_parameters()}
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter_name, parameter in network.named_parameters():
                parameter.add_(sign * steps[parameter_name])
        torch.manual_seed(5)
        ends.append(learner.query_loss(batch, 0.0)[0].mean().item())
        with torch.no_grad():
            for parameter_name, parameter in network.named_parameters():
                parameter.sub_(sign * steps[parameter_name])
    expected = sum(float((found[n] * step).sum()) for n, step in steps.items())
    assert abs(expected) > 1e-9
    return abs((ends[0] - ends[1]) / 2 - expected) / abs(expected)


def test_every_module_of_torch_has_a_row():
    assert set(names()) == {*CASES, *NO_LAYERS}


@pytest.mark.parametrize("name", sorted(VECTORISED))
def test_the_vectorised_meta_gradient_is_exact(name: str):
    assert error_of_gradient(name, vectorise=True) < 1e-6


@pytest.mark.parametrize("name", sorted(ONE_BY_ONE))
def test_the_looped_meta_gradient_is_exact_where_vmap_fails(name: str):
    with pytest.raises((RuntimeError, UserWarning)):  # torch warns where vmap is a loop of its own
        error_of_gradient(name, vectorise=True)
    assert error_of_gradient(name, vectorise=False) < 1e-6


@pytest.mark.parametrize("name", sorted(ONE_BY_ONE))
def test_the_engine_chooses_the_loop_by_itself_and_says_so(name: str):
    learner = learners.build("maml", probe(name), inner_lr=0.3, inner_steps=2)
    with pytest.warns(OneByOne, match="Probe: episodes are computed one after another, as `vmap` fails: "):
        learner.meta_step(episodes(), progress=0.0)
    learner.meta_step(episodes(), progress=0.0)  # a second warning would be an error
    assert learner.engine.note.startswith("fails: ")


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("engine", learners.ALL_ENGINES)
def test_what_torch_cannot_differentiate_twice_is_refused_in_one_line(name: str, engine: str):
    learner = learners.build("maml", probe(name), engine=engine, inner_lr=0.3, inner_steps=2)
    with pytest.raises(InputError, match=REFUSAL) as said:
        learner.meta_step(episodes(), progress=0.0)
    assert len(str(said.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore::arelu_meta.learners.engines.func_engine.OneByOne")
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_remedy_helps(name: str):
    network = probe(name)
    learners.build("fomaml", network, inner_lr=0.3, inner_steps=2).meta_step(episodes(), progress=0.0)
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_known_layers_are_those_that_are_exact():
    """Losses and what turns into another class with its first input need not be known."""
    known = {kind.__name__ for kind in EXACT}
    assert known - {"NonDynamicallyQuantizableLinear"} <= VECTORISED
    # Two options of an embedding are wrong under vmap, so that each is checked.
    others = {name for name in VECTORISED - known if not name.startswith("Lazy") and "Loss" not in name}
    assert others == {"DataParallel", "Embedding"}
    assert EXACT_BY_KERNELS <= EXACT


def test_a_forward_of_ones_own_is_not_known():
    layer = nn.Linear(2, 2)
    assert is_known(layer)
    layer.forward = torch.tanh
    assert not is_known(layer)
    assert not is_known(type("Mine", (nn.Linear,), {})(2, 2))


def test_the_table_in_the_docs_names_each_module_once(root: Path):
    page = (root / "docs" / "meta_learning.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `torch.nn`: ")]
    table = {title.strip().removeprefix("`torch.nn`: "): set(cell.split()) for _, title, cell, _ in rows}
    by_kernels = {kind.__name__ for kind in EXACT_BY_KERNELS} & set(CASES)
    lazy = {name for name in VECTORISED if name.startswith("Lazy")}
    assert table == {
        "vectorised, torch's operations": VECTORISED - by_kernels - lazy,
        "vectorised, our operations": by_kernels,
        "one by one": ONE_BY_ONE,
        "refused": REFUSED,
    }
