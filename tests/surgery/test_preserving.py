"""What `preserve` must not trip over, and the names it leaves in a state dict."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from arelu_meta.surgery import restore, swap
from arelu_meta.surgery.survey import build_surveyed


class ConstantInForward(nn.Module):
    """B6: the trace keeps the constant as an attribute that the module does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x) * torch.tensor(2.0)))


def test_tensor_constants_in_forward():
    model, x = ConstantInForward(), torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    before = model(x)
    report = swap(model, "prelu", preserve=True)
    assert torch.equal(model(x), before)
    restore(model, report)
    assert swap(model, "arelu", preserve=True).sites[0].folded_into == "last"


def relu6_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU6(), nn.Conv2d(2, 1, 1), nn.ReLU6())


@pytest.mark.parametrize("to", ["arelu", "prelu", "elsa", "pau"])
def test_a_state_dict_loads_into_a_network_swapped_without_preserve_and_back(to: str):
    """B11: the bound of ReLU6 put `base.` into the names."""
    torch.manual_seed(0)
    bounded, free = relu6_network(), relu6_network()
    report = swap(bounded, to, preserve=True)
    swap(free, to)
    assert list(bounded.state_dict()) == list(free.state_dict())
    assert [name for name, _ in bounded.named_parameters()] == [name for name, _ in free.named_parameters()]
    with torch.no_grad():
        next(bounded[1].parameters()).fill_(0.7)
    free.load_state_dict(bounded.state_dict())
    x = torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(bounded[1](bounded[0](x)), free[1](free[0](x)).clamp(max=6))
    copied = pickle.loads(pickle.dumps(bounded))
    assert torch.equal(copied(x), bounded(x))
    assert report.sites[0].new.endswith(" up to 6")


def test_keys_of_a_published_relu6_network():
    plain, preserved = (build_surveyed("mobilenet_v2") for _ in range(2))
    swap(plain, "arelu")
    swap(preserved, "arelu", preserve=True)
    assert list(plain.state_dict()) == list(preserved.state_dict())


def test_a_bound_that_was_kept_is_kept_by_the_next_swap():
    """PReLU stood alone after AReLU up to 6: min(relu(x), 6), then prelu(x) without a bound."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU6(), nn.Identity())
    swap(model, "prelu", preserve=True)
    second = swap(model, "comb_paper", from_="prelu", preserve=True)
    assert second.sites[0].new == "CombPaper up to 6"
    assert model[1](torch.tensor([-2.0, 3.0, 9.0])).tolist() == [0.0, 3.0, 6.0]
    restore(model, second)
    swap(model, "prelu", from_="prelu")
    assert model[1](torch.tensor([9.0])).item() == 9.0


def test_a_hook_whose_owner_cannot_be_copied(tmp_path: Path):
    """TypeError: cannot pickle '_io.TextIOWrapper' object."""

    class Log:
        def __init__(self) -> None:
            self.file, self.calls = (tmp_path / "log").open("w"), 0

        def hook(self, *_: Any) -> None:
            self.calls += 1

    model, log = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), Log()
    model[1].register_forward_hook(log.hook)
    swap(model, "arelu", preserve=True)
    model(torch.ones(1, 2))
    log.file.close()
    assert log.calls == 1
