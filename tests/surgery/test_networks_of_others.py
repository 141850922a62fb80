"""Networks that cannot be traced as a whole: Hugging Face's for images, torchvision's detectors.

Activations are counted by the kernels that run before and by hooks on the new modules after; neither knows of surgery.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import detection, resnet18
from torchvision.models.detection.backbone_utils import BackboneWithFPN

from arelu_meta.errors import InputError
from arelu_meta.surgery import restore, swap
from tests.surgery.counting import count_calls, count_kernels

SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 2]}
SEGFORMER = {
    "num_encoder_blocks": 2,
    "depths": [1, 2],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "strides": [2, 2],
    "patch_sizes": [3, 3],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
}
MOBILEVIT = {
    "image_size": 32,
    "hidden_sizes": [16, 16, 16],
    "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32],
    "num_attention_heads": 2,
}
# Network, settings, its activation, and the kernel that runs once for each call of it.
aten = torch.ops.aten
NETWORKS: dict[str, tuple[str, dict[str, Any], str, Any]] = {
    "beit": ("BeitForImageClassification", SMALL, "gelu", aten.gelu),
    "clip": ("CLIPVisionModel", SMALL, "quick_gelu", aten.sigmoid),
    "convnext": ("ConvNextForImageClassification", {**STAGES, "num_stages": 2}, "gelu", aten.gelu),
    "deit": ("DeiTForImageClassification", SMALL, "gelu", aten.gelu),
    "dinov2": ("Dinov2ForImageClassification", SMALL, "gelu", aten.gelu),
    "mobilenet_v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.35}, "relu6", aten.hardtanh),
    "mobilevit": ("MobileViTForImageClassification", MOBILEVIT, "swish", aten.silu),
    "regnet": ("RegNetForImageClassification", {**STAGES, "embedding_size": 8, "groups_width": 4}, "relu", aten.relu),
    "resnet": ("ResNetForImageClassification", {**STAGES, "embedding_size": 8}, "relu", aten.relu),
    "segformer": ("SegformerForImageClassification", SEGFORMER, "gelu", aten.gelu),
    "swin": (
        "SwinForImageClassification",
        {"image_size": 32, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4},
        "gelu",
        aten.gelu,
    ),
    "vit": ("ViTForImageClassification", SMALL, "gelu", aten.gelu),
    "vit, gelu_new": ("ViTForImageClassification", {**SMALL, "hidden_act": "gelu_new"}, "gelu_tanh", aten.tanh),
}


class QuickGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + torch.exp(-1.702 * x))


SAME: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "quick_gelu": QuickGELU,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "swish": nn.SiLU,
}


class KernelCounter(TorchDispatchMode):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel, self.total = kernel, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += func.overloadpacket is self.kernel
        return func(*args, **(kwargs or {}))


def build(name: str) -> nn.Module:
    made, settings, *_ = NETWORKS[name]
    torch.manual_seed(0)
    network_class = getattr(transformers, made)
    network = network_class(network_class.config_class(**settings))
    with torch.no_grad():
        for parameter in network.parameters():  # some start at zero, and would hide what is before them
            parameter.add_(0.02 * torch.randn_like(parameter))
    return network.eval()


def count(network: nn.Module, images: Tensor, kernel: Any) -> int:
    with KernelCounter(kernel) as counter, torch.no_grad():
        network(images)
    return counter.total


def answers(network: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return network(images)[0]


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


QUICK = ("clip", "resnet", "vit", "vit, gelu_new")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NETWORKS]
)
def test_every_activation_of_a_hugging_face_network_is_swapped(name: str, images: Tensor):
    """As many new modules as kernels ran, each called once, in both modes; then all is put back bit for bit."""
    *_, activation, kernel = NETWORKS[name]
    network = build(name)
    before, state = answers(network, images), copy.deepcopy(network.state_dict())
    calls = count(network, images, kernel)
    report = swap(network, "leaky_relu", parts="auto", negative_slope=0.3)
    names = [site.name for site in report.sites]
    assert len(names) == calls > 1
    assert report.left == ()
    assert len(set(report.parts)) == len(report.parts)
    assert not torch.allclose(answers(network, images), before, atol=1e-4)
    trained = copy.deepcopy(network).train()
    for other in (network, trained):
        assert count(other, images, kernel) == 0
        assert count_calls(other, names, images) == dict.fromkeys(names, 1)
    restore(network, report)
    assert torch.equal(answers(network, images), before)
    after = network.state_dict()
    assert list(after) == list(state)
    assert all(torch.equal(after[key], value) for key, value in state.items())
    report = swap(network, SAME[activation], from_=activation, parts="auto")
    assert len(report.sites) == calls
    torch.testing.assert_close(answers(network, images), before, rtol=1e-6, atol=1e-6)


def test_without_parts_they_are_refused_with_the_remedy():
    with pytest.raises(InputError, match='give `parts="auto"` to swap the 2 that can be proved'):
        swap(build("vit"), "arelu")


def small_backbone() -> nn.Module:
    layers = {"layer3": "0", "layer4": "1"}
    return BackboneWithFPN(resnet18(weights=None), layers, in_channels_list=[256, 512], out_channels=16)


def detector(name: str) -> nn.Module:
    if name == "ssdlite":
        return detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    sizes = {"num_classes": 3, "min_size": 64, "max_size": 64}
    anchors = detection.anchor_utils.AnchorGenerator(((16,),) * 3, ((1.0,),) * 3)
    if name == "retinanet":
        return detection.RetinaNet(small_backbone(), anchor_generator=anchors, **sizes)
    pooled = {"rpn_anchor_generator": anchors, "box_roi_pool": None}
    return detection.FasterRCNN(small_backbone(), **{**pooled, **sizes})


@pytest.mark.parametrize("name", ["fasterrcnn", "retinanet", "ssdlite"])
def test_detectors_are_swapped_part_by_part(name: str):
    """Heads run once for each level of the pyramid, so there are more kernels than sites; none is left."""
    torch.manual_seed(0)
    network = detector(name).eval()
    images = [torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(1))]
    state = copy.deepcopy(network.state_dict())
    kernels = count_kernels(network, images)
    with pytest.raises(InputError, match='give `parts="auto"`'):
        swap(network, "tanh")
    report = swap(network, "tanh", parts="auto")
    assert report.left == ()
    assert count_kernels(network, images) == 0
    calls = count_calls(network, [site.name for site in report.sites], images)
    assert sum(calls.values()) == kernels
    assert set(calls) == {site.name for site in report.sites}
    restore(network, report)
    assert count_kernels(network, images) == kernels
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
