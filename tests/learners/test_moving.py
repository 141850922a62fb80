"""What adapts: the head is what makes the logits, whatever it is called and wherever it was registered."""

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from arelu_meta import learners
from arelu_meta.errors import InputError
from arelu_meta.learners.moving import (
    chosen_names,
    head_parameters,
    moving_names,
    names_of_parts,
    norm_parameters,
    parameters_of,
)
from tests.learners.small_problems import WAYS, conv4, episodes, mnist_conv, own_net


class HeadFirst(nn.Module):
    """Registered in the opposite order of the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, WAYS)
        self.body = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.body(x.flatten(1))))


class Functional(nn.Module):
    """A head that is no layer: a matrix, a temperature, and a body that is named head."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.centres = nn.Parameter(torch.randn(WAYS, 6))
        self.head = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        directions = nn.functional.normalize(self.centres, dim=1)
        return nn.functional.linear(self.head(x.flatten(1)), directions) * self.temperature


class Bare(nn.Module):
    """Parameters on the network itself, used as the expression says; `first` and `second` are matrices."""

    def __init__(self, expression: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.expression = expression
        self.first, self.second = nn.Parameter(torch.randn(16, 6)), nn.Parameter(torch.randn(6, WAYS))
        self.third = nn.Parameter(torch.randn(6, WAYS))
        self.shift, self.scale = nn.Parameter(torch.randn(1, WAYS)), nn.Parameter(torch.ones(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x.flatten(1) @ self.first)
        return eval(self.expression, {"torch": torch}, {"self": self, "h": hidden})  # noqa: S307


@pytest.mark.parametrize(
    ("expression", "head"),
    [
        ("h @ self.second", {"second"}),
        ("(h @ self.second) * self.scale", {"second", "scale"}),
        ("h @ self.second + self.shift", {"second", "shift"}),
        ("h @ self.second + 0.3 * (h @ self.third)", {"second", "third"}),
        ("torch.einsum('nd,dw->nw', h, self.second)", {"second"}),
        ("-torch.cdist(h, self.second.T)", {"second"}),
        ("torch.log_softmax(h @ torch.tanh(self.second), 1)", {"second"}),
    ],
)
def test_heads_that_are_no_layers(expression, head):
    assert head_parameters(Bare(expression), torch.randn(3, 1, 4, 4)) == head


def test_heads_that_cannot_be_found_are_asked_for():
    class Detached(HeadFirst):
        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.tanh(self.body(x.flatten(1))).detach())

    with pytest.raises(InputError, match="no last layer was found between the images and the output of Detached"):
        head_parameters(Detached(), torch.randn(2, 1, 4, 4))
    with pytest.raises(InputError, match=r"the head of HeadFirst cannot be found by inputs of torch.int64; name it by"):
        head_parameters(HeadFirst(), torch.zeros(2, 1, 4, 4, dtype=torch.long))
    assert parameters_of(Bare("h"), "second") == {"second"}


@pytest.mark.parametrize("moving", ["typo", "Head", "out"])
def test_a_word_that_is_no_part_is_a_name(moving):
    with pytest.raises(InputError, match=f"unknown parameter in `adapt`: '{moving}'"):
        learners.build("maml", HeadFirst(), adapt=moving, inner_lr=0.3, inner_steps=1)
    made = learners.build("maml", HeadFirst(), adapt="out.*", inner_lr=0.3, inner_steps=1)
    assert made.rule.moving == {"out.weight", "out.bias"}


def test_nothing_to_adapt_is_refused():
    network = HeadFirst()
    with pytest.raises(InputError, match="no parameter adapts"):
        learners.build("maml", network, adapt=frozenset(), inner_lr=0.3, inner_steps=1)
    network.out.requires_grad_(False)
    learner = learners.build("anil", network, inner_lr=0.3, inner_steps=1)
    with pytest.raises(InputError, match=r"no parameter adapts: all that could are frozen"):
        learner.prepare(episodes(dtype=torch.float32))


@pytest.mark.parametrize(
    ("network", "size", "head"),
    [
        (lambda: mnist_conv(dtype=torch.float32), 28, {"head.weight", "head.bias"}),
        (lambda: conv4(dtype=torch.float32), 16, {"head.weight", "head.bias"}),
        (lambda: own_net(dtype=torch.float32), 4, {"last.weight", "last.bias"}),
        (HeadFirst, 4, {"out.weight", "out.bias"}),
        (Functional, 4, {"centres", "temperature"}),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.LogSoftmax(1)), 4, {"1.weight", "1.bias"}),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 3))),
            4,
            {"1.bias", "1.parametrizations.weight.original0", "1.parametrizations.weight.original1"},
        ),
    ],
    ids=["mnist_conv", "conv4", "own", "registered first", "functional", "log softmax", "parametrised"],
)
def test_the_head_is_found_by_the_forward_pass(network, size, head):
    assert head_parameters(network(), torch.randn(3, 1, size, size)) == head


@pytest.mark.parametrize(
    ("make", "size", "head"),
    [
        (lambda: torchvision.models.resnet18(), 32, "fc"),
        (lambda: torchvision.models.mobilenet_v2(), 32, "classifier.1"),
        (lambda: torchvision.models.squeezenet1_1(), 64, "classifier.1"),
        (lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=5), 32, "head"),
        (lambda: timm.create_model("convnext_atto", num_classes=5), 32, "head.fc"),
        (lambda: timm.create_model("resnet10t", num_classes=5), 32, "fc"),
        (lambda: timm.create_model("tf_efficientnet_lite0", num_classes=5), 32, "classifier"),
    ],
    ids=["resnet18", "mobilenet_v2", "squeezenet", "vit", "convnext", "resnet10t", "lite0"],
)
def test_heads_of_torchvision_and_timm(make, size, head):
    assert head_parameters(make(), torch.randn(2, 3, size, size)) == {f"{head}.weight", f"{head}.bias"}


@pytest.mark.parametrize(("method", "moving"), [("anil", {"out"}), ("boil", {"body"})])
def test_anil_and_boil_move_what_they_say(method, moving):
    """Adapted by hand the layers differ from where they started, and only those."""
    torch.manual_seed(0)
    network, batch = HeadFirst().double(), episodes()
    learner = learners.build(method, network, inner_lr=0.3, inner_steps=1)
    adapted = learner.adapt(batch.support_x[0], batch.support_y[0]).parameters
    changed = {name for name, value in network.named_parameters() if not torch.equal(adapted[name], value)}
    assert changed == {f"{layer}.{kind}" for layer in moving for kind in ("weight", "bias")} == learner.rule.moving


@pytest.mark.parametrize(("method", "moving"), [("anil", {"body"}), ("boil", {"out"})])
def test_a_head_of_ones_own_choice(method, moving):
    learner = learners.build(method, HeadFirst(), head="body", inner_lr=0.3, inner_steps=1)
    assert {name.partition(".")[0] for name in learner.rule.moving} == moving


def test_wrong_names_suggest_the_near_one():
    network = HeadFirst()
    with pytest.raises(InputError, match="unknown layer in `head`: 'boddy'; did you mean 'body'"):
        learners.build("anil", network, head="boddy", inner_lr=0.3, inner_steps=1)
    with pytest.raises(InputError, match=r"unknown parameter in `adapt`: 'out.wieght'; did you mean 'out.weight'"):
        learners.build("maml", network, adapt=frozenset({"out.wieght"}), inner_lr=0.3, inner_steps=1)


def test_patterns_and_frozen_parameters():
    network = HeadFirst()
    assert moving_names(network, ["*.bias"]) == {"out.bias", "body.bias"}
    assert moving_names(network, None) is None
    network.out.bias.requires_grad_(False)
    assert moving_names(network, ["*.bias"]) == {"body.bias"}
    assert moving_names(network, None) == {"out.weight", "body.weight", "body.bias"}
    assert head_parameters(network, torch.randn(2, 1, 4, 4)) == {"out.weight", "out.bias"}


def test_parts():
    network = HeadFirst()
    assert names_of_parts(network, "body", parameters_of(network, "out")) == {"body.weight", "body.bias"}
    assert names_of_parts(network, "head+norm", parameters_of(network, "out")) == {
        "out.weight",
        "out.bias",
        "body.bias",
    }
    assert names_of_parts(network, "head+all", frozenset()) is None
    with pytest.raises(InputError, match="HeadFirst is nothing but a head"):
        names_of_parts(network, "body", frozenset(name for name, _ in network.named_parameters()))
    with pytest.raises(
        InputError, match=r"activations of HeadFirst have no parameters to adapt; use `activation` arelu"
    ):
        learners.build("maml", network, adapt="activation", inner_lr=0.3, inner_steps=1)
    bare = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    with pytest.raises(InputError, match="Sequential has neither norms nor biases to adapt"):
        learners.build("maml", bare, adapt="norm", inner_lr=0.3, inner_steps=1)
    with pytest.raises(InputError, match=r"adapt 'norm' treats no layer apart; leave `head` out \('out'\)"):
        chosen_names(network, "norm", "out")
    with pytest.raises(InputError, match="no last layer was found between the images and the output of Flatten"):
        head_parameters(nn.Flatten(), torch.zeros(2, 3, requires_grad=True))


def test_norms_are_known_by_their_kind_and_biases_by_their_name():
    """conv4 has four blocks: a convolution with a bias, a norm of scale and shift; and a head with a bias."""
    expected = {f"blocks.{block}.{leaf}" for block in range(4) for leaf in ("0.bias", "1.weight", "1.bias")}
    assert norm_parameters(conv4()) == {*expected, "head.bias"}


def test_finding_the_head_draws_no_random_numbers():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, 3))
    before = torch.get_rng_state()
    head_parameters(network, torch.randn(2, 1, 4, 4, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)
