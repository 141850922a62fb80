"""What tools of torch make of a network with rewritten blocks: torch.fx, TorchScript, traces."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18
from torchvision.models.feature_extraction import create_feature_extractor

from arelu_meta.surgery import swap


@pytest.fixture(scope="module")
def swapped() -> nn.Module:
    torch.manual_seed(0)
    network = resnet18(weights=None, num_classes=5).eval()
    assert len(swap(network, "arelu").rewritten) == 8
    return network


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def test_torchvision_extracts_features_of_a_swapped_network(swapped: nn.Module, images: Tensor):
    """A TraceError before; features are those that a hook on the block sees."""
    seen = {}
    handle = swapped.layer2.register_forward_hook(lambda _module, _inputs, output: seen.update(layer2=output))
    logits = swapped(images)
    handle.remove()
    features = create_feature_extractor(swapped, {"layer2": "features", "fc": "logits"})(images)
    assert torch.equal(features["features"], seen["layer2"])
    assert torch.equal(features["logits"], logits)


@pytest.mark.filterwarnings("ignore:.torch.jit.:FutureWarning")
def test_torchscript_compiles_a_swapped_network(swapped: nn.Module, images: Tensor):
    """Blocks are written anew as text, which TorchScript must find."""
    network, x = copy.deepcopy(swapped).double(), images.double()
    torch.testing.assert_close(torch.jit.script(network)(x), network(x), rtol=1e-12, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.torch.jit.:FutureWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_network_is_differentiated(swapped: nn.Module, images: Tensor):
    """In float64, where the two ways of the first feature map, block by block and by the formula, agree to 1e-9."""
    network, x = copy.deepcopy(swapped).double(), images.double()
    traced = torch.jit.trace(network, (x,))
    parameters = list(network.parameters())  # the traced network's own
    wanted = torch.autograd.grad(network(x).mean(), parameters)
    for gradient, other in zip(torch.autograd.grad(traced(x).mean(), parameters), wanted, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)
