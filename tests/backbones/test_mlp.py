import torch

from arelu_meta import activations
from arelu_meta.backbones.mlp import Mlp


def made(activation: str = "relu", channels: int = 1, classes: int = 1, **options: int) -> Mlp:
    return Mlp(
        activation=activations.factory(activation), channels=channels, image_size=(1, 1), classes=classes, **options
    )


def test_parameters_by_hand():
    """40 (1 + 1) + 40 (40 + 1) + 1 (40 + 1), that is 80 + 1,640 + 41; Maxout's layers are twice as wide."""
    assert sum(parameter.numel() for parameter in made().parameters()) == 1_761
    assert sum(parameter.numel() for parameter in made("maxout").parameters()) == 2 * (80 + 1_640) + 41
    assert sum(p.numel() for p in made(channels=7, classes=3, width=5, layers=1).parameters()) == 5 * 8 + 3 * 6


def test_rows_and_images_of_one_pixel_are_the_same():
    network, x = made(channels=4, classes=2), torch.rand(3, 4)
    assert network.features(x).shape == (3, 40)
    assert torch.equal(network(x), network(x.view(3, 4, 1, 1)))
