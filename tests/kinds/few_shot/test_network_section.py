import pytest

from arelu_meta.errors import InputError
from arelu_meta.kinds.few_shot.network_section import EpisodeNetworkSection


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"activation": "own"}, "activation 'own' is for networks of others; name one for 'mnist_conv'"),
        ({"weights": "w.pth"}, "`weights` w.pth are for networks of others; .* arelu_meta/mnist_conv"),
        (
            {"backbone": "timm/resnet10t", "norm": "group"},
            "`norm` and `init` are for networks of ours; .* 'timm/resnet10t'",
        ),
        ({"backbone": "timm/resnet10t", "init": "he"}, "`norm` and `init` are for networks of ours"),
    ],
)
def test_what_does_not_go_together(values: dict, message: str):
    with pytest.raises(InputError, match=message):
        EpisodeNetworkSection(**values)


@pytest.mark.parametrize(
    ("name", "pretrained"),
    [("conv4", False), ("timm/resnet10t", True), ("installed/efficientnet_lite0", True), ("arelu_meta/conv4", True)],
)
def test_which_networks_are_those_of_others(name: str, pretrained: bool):
    assert EpisodeNetworkSection(backbone=name).is_pretrained == pretrained
