import torch
from torch import nn

from arelu_meta.pictures.network_sketch import network_sketch


def test_layers_in_the_order_of_their_calls_with_their_shapes():
    """8x8 - 3 + 1 = 6, halved 3; 2 channels of 3x3 are 18 numbers."""
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 5))
    axes = network_sketch(network, torch.zeros(1, 8, 8), title="small").axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts[::2] == ["Conv2d", "MaxPool2d", "ReLU", "Flatten", "Linear"]
    assert texts[1::2] == ["2, 6x6", "2, 3x3", "2, 3x3", "18", "5"]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights[0] == max(heights)
    assert heights[-1] == min(heights)
