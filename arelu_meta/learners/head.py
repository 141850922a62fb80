"""Which parameters are the head of a network: the last layer, that ANIL adapts and BOIL does not."""

from torch import nn

from arelu_meta.errors import InputError

HEAD_NAMES = ("head", "fc", "classifier")  # ours, torchvision's and timm's


def head_parameters(network: nn.Module) -> frozenset[str]:
    """Names of the head's parameters: those of `head`, `fc` or `classifier`, else of the last layer that has any."""
    names = [name for name, _ in network.named_parameters()]
    for prefix in HEAD_NAMES:
        found = frozenset(name for name in names if name.split(".")[0] == prefix)
        if found:
            return found
    if not names:
        raise InputError("the network has no parameters to adapt")
    last = names[-1].rpartition(".")[0]
    return frozenset(name for name in names if name.rpartition(".")[0] == last)
