"""`conv4`: the four-block network of the few-shot literature."""

from torch import Tensor, nn

from arelu_meta.activations import Factory
from arelu_meta.backbones.conv_block import Backbone, check_halvings, input_multiple
from arelu_meta.backbones.norm import Norm, make_norm


class Conv4(Backbone):
    """Four blocks of 3x3 convolution, norm, activation and 2x2 max-pool, and a linear head.

    Input (N, channels, H, W) of at least 16x16, output (N, classes) logits. With 64 filters, one channel, 28x28, five
    classes and batch norm: 111,936 parameters in the blocks (convolutions 640 + 3 * 36,928, norms 4 * 128) and 325 in
    the head.

    Args:
        activation, channels, image_size, classes: as in `backbones.build`
        filters: channels of every block
        norm: "batch", "batch_support", "running", "group" or "none", as in `norm.make_norm`
    """

    def __init__(
        self,
        *,
        activation: Factory,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        filters: int = 64,
        norm: Norm = "batch",
    ) -> None:
        super().__init__()
        check_halvings("conv4", image_size, 4)
        blocks = []
        for inputs in (channels, filters, filters, filters):
            act = activation()
            width = filters * input_multiple(act)
            conv = nn.Conv2d(inputs, width, 3, padding=1)
            blocks.append(nn.Sequential(conv, make_norm(norm, width), act, nn.MaxPool2d(2)))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(filters * (image_size[0] // 16) * (image_size[1] // 16), classes)

    def features(self, x: Tensor) -> Tensor:
        """Give the features before the head, (N, filters * H/16 * W/16)."""
        return self.blocks(x).flatten(1)
