"""Output of a network for all images: in batches that fit, in the number format of the training."""

import pytest
import torch
from torch import Tensor, nn

from arelu_meta import data
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import RunError
from arelu_meta.training.forward import autocast, bears_channels_last, evaluation_batch, predict


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return data.load("digits").subset(torch.arange(11))


class Small(nn.Module):
    """A network on a device with room for so many images; `sizes` are the batches it was asked for."""

    def __init__(self, room: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 3))  # 28x28 to 7x7
        self.room, self.sizes = room, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.layer(x)


class Flat(nn.Module):
    """A convolution whose maps are laid flat in one of two ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv, self.norm, self.way = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), way

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.norm(self.conv(x)), self.way)(len(x), -1)


def test_channels_last_is_for_networks_with_convolutions_that_do_not_view_their_maps():
    """Tensor.view asks for a layout, Tensor.reshape for none; the network that was asked stays as it was."""
    x = torch.rand(2, 3, 8, 8)
    free, bound = Flat("reshape").train(), Flat("view").train()
    before = {name: value.clone() for name, value in free.state_dict().items()}
    assert (bears_channels_last(free, x), bears_channels_last(bound, x)) == (True, False)
    assert not bears_channels_last(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), x)
    assert free.training
    assert free.conv.weight.is_contiguous()
    assert all(torch.equal(value, before[name]) for name, value in free.state_dict().items())


def test_batches_that_do_not_fit_are_halved_and_nothing_is_lost(images: ImageSet):
    """Of eleven images, eight, then four do not fit; two do, and the answers are those of a device with room."""
    tight = Small(room=3)
    answers = predict(tight, images, batch=8)
    assert tight.sizes == [8, 4, 2, 2, 2, 2, 2, 1]
    expected = tight.layer(images.pixels(torch.arange(11)))
    torch.testing.assert_close(answers, expected)


def test_memory_that_runs_out_on_the_way(images: ImageSet):
    class Filling(Small):
        def forward(self, x: Tensor) -> Tensor:
            self.room = 2 if len(self.sizes) == 1 else self.room
            return super().forward(x)

    network = Filling(room=4)
    answers = predict(network, images, batch=4)
    assert network.sizes == [4, 4, 2, 2, 2, 1]
    torch.testing.assert_close(answers, network.layer(images.pixels(torch.arange(11))))


def test_no_room_for_one_image_is_said(images: ImageSet):
    with pytest.raises(RunError, match="not even one image fits into the memory of cpu"):
        predict(Small(room=0), images, batch=4)


def test_answers_are_computed_as_in_training(images: ImageSet):
    """The rounding of the format is in the answers, which are float32: 8 bits of mantissa."""
    network = Small(room=11)
    answers, wide = predict(network, images, precision="bf16"), predict(network, images)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = network(images.pixels(torch.arange(11)))
    assert expected.dtype == torch.bfloat16
    assert torch.equal(answers, expected.float())
    assert 0 < (answers - wide).abs().max() < 0.05 * wide.abs().max()


def test_full_precision_is_not_cast():
    with autocast(torch.device("cpu"), "fp32"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_batches_follow_the_training_where_memory_is_scarce():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [evaluation_batch(gpu, size) for size in (8, 64, 1000)] == [32, 256, 1024]
    assert evaluation_batch(gpu, 64, most=32) == 32
    assert evaluation_batch(cpu, 8) == 1024
