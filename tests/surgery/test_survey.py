"""Surgery on the networks of torchvision and timm, against counts and outputs that know nothing of fx."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from arelu_meta.errors import InputError
from arelu_meta.surgery import restore, survey, swap
from tests.surgery.counting import count_calls, count_kernels

EXCESS = 1 / (1 + math.exp(8))  # sigmoid(-8), where preserve starts beta
QUICK = ("squeezenet1_1", "resnet18", "googlenet", "timm/resnet18")
REFUSED = {
    "timm/crossvit_tiny_240",
    "timm/dpn68",
    "timm/efficientvit_b0",
    "timm/mobilevit_s",
    "timm/nest_tiny",
    "timm/selecsls42b",
    "timm/twins_pcpvt_small",
    "timm/vgg11",
}


def quick_or_slow(names: list[str], quick: tuple[str, ...]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def test_the_survey_covers_torchvision_and_thirty_timm_families():
    names = survey.surveyed_names()
    assert len(names) == len(set(names))
    assert sum(not name.startswith("timm/") for name in names) >= 80
    assert sum(name.startswith("timm/") for name in names) >= 30 + len(REFUSED)
    assert set(names) >= REFUSED


@pytest.mark.parametrize("name", quick_or_slow([n for n in survey.surveyed_names() if n not in REFUSED], QUICK))
def test_as_many_new_modules_as_kernels_ran(name: str):
    """Counted in training mode, in which auxiliary heads run, too."""
    network = survey.build_surveyed(name).train()
    side = 299 if name == "inception_v3" else 224
    size = network.default_cfg["input_size"] if name.startswith("timm/") else (3, side, side)
    images = torch.zeros(2, *size, device="meta")
    kernels = count_kernels(network, images)
    keys = set(network.state_dict())
    report = swap(network, "arelu")
    names = [site.name for site in report.sites]
    assert len(names) == kernels > 0
    assert count_calls(network, names, images) == dict.fromkeys(names, 1)
    assert count_kernels(network, images) == 0
    assert keys < set(network.state_dict())


@pytest.mark.parametrize("name", ["squeezenet1_1", "timm/resnet18"])
def test_activations_with_numbers_for_each_channel(name: str):
    """ACON-C has three numbers for each channel that the ReLU before it had, counted by a hook at each call."""
    network, counted = survey.build_surveyed(name, meta=False).eval(), list[int]()
    for module in network.modules():
        if isinstance(module, torch.nn.ReLU):
            module.register_forward_hook(lambda _, __, output: counted.append(output.shape[1]))
    network(torch.zeros(1, 3, 224, 224))
    (found,) = survey.survey([name], "acon_c")
    assert found.report is not None
    assert sum(site.parameters for site in found.report.sites) == 3 * sum(counted)


@pytest.mark.parametrize("name", quick_or_slow(sorted(REFUSED), ("timm/selecsls42b",)))
def test_refusals_list_the_sites(name: str):
    network = survey.build_surveyed(name)
    with pytest.raises(InputError, match="cannot prove the activation calls") as caught:
        swap(network, "arelu")
    listed = str(caught.value).partition("sites found: ")[2].split(", ")
    activations = (torch.nn.ReLU, torch.nn.GELU, torch.nn.Hardswish, torch.nn.ReLU6, torch.nn.SiLU)
    modules = [path for path, module in network.named_modules() if isinstance(module, activations)]
    assert {site.partition(" ")[0] for site in listed} >= set(modules)


@pytest.mark.parametrize("name", quick_or_slow(sorted(REFUSED), ("timm/selecsls42b",)))
def test_refused_networks_are_swapped_part_by_part(name: str):
    """Every kernel that ran is now a call of a new module, or still runs at a place that the report names."""
    network = survey.build_surveyed(name).train()
    images = torch.zeros(2, *network.default_cfg["input_size"], device="meta")
    kernels = count_kernels(network, images)
    report = swap(network, "tanh", parts="auto")
    names = [site.name for site in report.sites]
    assert count_calls(network, names, images) == dict.fromkeys(names, 1)
    remaining = count_kernels(network, images)
    assert remaining == kernels - len(names)
    assert remaining == {"timm/efficientvit_b0": 4 * 2 + 1, "timm/vgg11": 2}.get(name, 0)
    assert len(report.left) == {"timm/efficientvit_b0": 4 + 1, "timm/vgg11": 2}.get(name, 0)


class LeakyEverywhere(TorchFunctionMode):
    """Every ReLU of a network with slope 0.01 below zero: what alpha = 0.01 makes of it."""

    RELUS = (F.relu, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.RELUS:
            return torch.where(args[0] < 0, 0.01 * args[0], args[0])
        return func(*args, **(kwargs or {}))


RELU_NETWORKS = (
    "alexnet",
    "densenet121",
    "googlenet",
    "mnasnet0_5",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "squeezenet1_1",
    "vgg11_bn",
    "wide_resnet50_2",
    "timm/dla34",
    "timm/hrnet_w18_small",
    "timm/res2net50_26w_4s",
    "timm/resnet18",
    "timm/xception41",
)


@pytest.mark.parametrize("name", quick_or_slow(list(RELU_NETWORKS), ("resnet18", "squeezenet1_1")))
def test_preserve_changes_what_alpha_changes_and_restore_changes_it_back(name: str):
    """Beside the same network with leaky ReLU everywhere, only gains that found no layer to go into are left.

    n gains of 1 + sigmoid(-8) in a row scale by (1 + sigmoid(-8))^n at most; what they scale is the output (biases, and
    norms with running statistics, are not scaled and only bring it nearer). An answer can change where the two largest
    logits are nearer to each other than twice what alpha and the gains move a logit; no other may.
    """
    torch.manual_seed(0)
    network = survey.build_surveyed(name, meta=False, num_classes=10).eval()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = network(images)
        with LeakyEverywhere():
            leaky = network(images)
        report = swap(network, "arelu", preserve=True)
        after = network(images)
        restore(network, report)
        assert torch.equal(network(images), before)
    unfolded = sum(site.folded_into is None for site in report.sites)
    gains = (1 + EXCESS) ** unfolded - 1 + 1e-4
    assert not torch.equal(after, before)
    assert (after - leaky).norm() <= gains * leaky.norm()
    moved = (leaky - before).abs().amax(1) + gains * leaky.abs().amax(1)
    largest = before.topk(2, dim=1).values
    clear = largest[:, 0] - largest[:, 1] > 2 * moved
    assert torch.equal(after.argmax(1)[clear], before.argmax(1)[clear])


def test_what_is_folded_follows_the_published_layout():
    """resnet18: the first ReLU of each of 8 blocks feeds conv2 alone, the last of all fc; 8 others are also added."""
    report = swap(survey.build_surveyed("resnet18"), "arelu", preserve=True)
    folded = [site.folded_into for site in report.sites if site.folded_into]
    assert folded == [f"layer{stage}.{block}.conv2" for stage in range(1, 5) for block in range(2)] + ["fc"]
    assert len(report.sites) == 17
