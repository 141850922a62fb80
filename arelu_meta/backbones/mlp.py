"""`mlp`: hidden layers on a vector, the network of the sinusoids of Finn et al. 2017."""

import math

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, input_multiple


class Mlp(Backbone):
    """Linear layers, each with an activation, and a linear head.

    Input (N, channels, H, W), of which each is flattened, or (N, channels * H * W); output (N, classes). A vector of D
    features is an image of D channels and one pixel. With one feature and one output: 80 + 1,640 + 41 = 1,761
    parameters without those of the activations.

    Args:
        activation, channels, image_size, classes: as in `backbones.build`
        width: units of every hidden layer
        layers: hidden layers
    """

    def __init__(
        self,
        *,
        activation: Factory,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        width: int = 40,
        layers: int = 2,
    ) -> None:
        super().__init__()
        blocks, inputs = list[nn.Module](), channels * math.prod(image_size)
        for _ in range(layers):
            act = activation()
            blocks += [nn.Linear(inputs, width * input_multiple(act)), act]
            inputs = width
        self.layers = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, width)."""
        return self.layers(x.flatten(1))
