"""Where the statistics of a norm come from, and whether queries see each other through them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad

from arelu_meta import learners
from arelu_meta.backbones.norm import BatchStatisticsNorm, statistics_from
from arelu_meta.data.episodes import Episode
from arelu_meta.learners.engines.func_engine import FuncEngine
from tests.learners.small_problems import WAYS, central_differences, conv4, episodes, gradients


def changed_neighbours(batch: Episode) -> Episode:
    """The same first query, other queries beside it."""
    query_x = batch.query_x.clone()
    query_x[:, 1:] = 3 * query_x[:, 1:] + 1
    return Episode(batch.support_x, batch.support_y, query_x, batch.query_y)


@pytest.mark.parametrize("engine", learners.ALL_ENGINES)
@pytest.mark.parametrize(
    ("norm", "transductive"), [("batch", True), ("batch_support", False), ("group", False), ("none", False)]
)
def test_queries_see_each_other_only_where_it_is_declared(norm, transductive, engine):
    network, batch = conv4("relu", norm=norm), episodes(size=16)
    learner = learners.build("maml", network, engine=engine, inner_lr=0.1, inner_steps=1)
    with torch.no_grad():
        before, after = learner.query_logits(batch), learner.query_logits(changed_neighbours(batch))
    apart = (before[:, 0] - after[:, 0]).abs().max().item()
    assert learner.transductive is transductive
    if transductive:
        assert apart > 1e-3
    else:
        assert apart < 1e-12


def test_support_statistics_by_hand():
    """Support 1 and 3 have mean 2 and variance 1; a query of 5 becomes (5 - 2) / sqrt(1 + eps)."""
    norm = BatchStatisticsNorm(1, support_only=True).double()
    x = torch.tensor([1.0, 3.0, 5.0, 100.0], dtype=torch.float64).view(4, 1)
    with statistics_from(2):
        out = norm(x).flatten().tolist()
    assert out == pytest.approx([(value - 2) / (1 + 1e-5) ** 0.5 for value in (1, 3, 5, 100)])
    mean, variance = 109 / 4, (1 + 9 + 25 + 10000) / 4 - (109 / 4) ** 2
    assert norm(x).flatten()[2].item() == pytest.approx((5 - mean) / (variance + 1e-5) ** 0.5)


def users_network(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, **options), nn.Tanh(), nn.Flatten(), nn.Linear(8, WAYS)
    ).double()


@pytest.mark.parametrize("vectorise", [True, False])
@pytest.mark.parametrize("options", [{}, {"track_running_stats": False}, {"affine": False}], ids=str)
def test_a_users_batch_norm_is_left_alone_and_its_meta_gradient_right(vectorise, options):
    network, batch = users_network(**options), episodes()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    learner = learners.build("maml", network, inner_lr=0.3, inner_steps=2)
    learner.engine = FuncEngine(vectorise=vectorise)
    assert learner.transductive
    learner.meta_step(batch, progress=0.0)
    assert type(network[1]) is nn.BatchNorm2d
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    found = gradients(network)
    looped = learners.build("maml", network, inner_lr=0.3, inner_steps=2)
    looped.engine = FuncEngine(vectorise=False)
    for name, parameter in network.named_parameters():
        slopes = central_differences(lambda: looped.query_loss(batch, 0.0)[0].mean().item(), parameter, most=9)
        assert torch.allclose(found[name].view(-1)[: len(slopes)], slopes, rtol=1e-6, atol=1e-9), name
    assert found["0.weight"].abs().max() > 1e-3
    assert found["0.bias"].abs().max() < 1e-12  # the norm takes out whatever the bias before it adds


@pytest.mark.parametrize("method", ["meta_sgd", "mamlpp", "boil", "anil", "reptile"])
def test_batch_norm_without_weights_under_methods_that_name_parameters(method):
    network = users_network(affine=False)
    learners.build(method, network, inner_lr=0.3, inner_steps=2).meta_step(episodes(), progress=0.0)
    assert [name for name, _ in network.named_parameters()] == ["0.weight", "0.bias", "4.weight", "4.bias"]


def test_torchs_own_batch_norm_is_still_wrong_in_second_order_under_vmap():
    """Why `kernels.norms` exists: when this fails, torch is mended, and the layer can go.

    The bias before a norm has no effect on the loss, so its gradient is 0; a loop over episodes gives that, `vmap` does
    not.
    """
    network, batch = users_network(track_running_stats=False), episodes()

    def one_episode(parameters: dict[str, Tensor], sx: Tensor, sy: Tensor, qx: Tensor, qy: Tensor) -> Tensor:
        def loss(current: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(network, current, (x,)), y)

        inner = grad(loss)(parameters, sx, sy)
        return loss({name: value - 0.3 * inner[name] for name, value in parameters.items()}, qx, qy)

    def vectorised(parameters: dict[str, Tensor]) -> Tensor:
        return torch.vmap(one_episode, in_dims=(None, 0, 0, 0, 0))(parameters, *batch.tensors()).mean()

    def looped(parameters: dict[str, Tensor]) -> Tensor:
        return torch.stack([one_episode(parameters, *episode.tensors()) for episode in batch]).mean()

    parameters = dict(network.named_parameters())
    assert torch.allclose(vectorised(parameters), looped(parameters), rtol=1e-12)
    assert grad(looped)(parameters)["0.bias"].abs().max() < 1e-12
    wrong = grad(vectorised)(parameters)["0.bias"].abs().max()
    assert wrong > 1e-4, f"torch {torch.__version__} has mended batch norm under vmap: kernels/norms.py may go"
