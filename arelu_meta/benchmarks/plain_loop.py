"""The loop of the tutorials: a torchvision-like Dataset, a DataLoader with workers, a plain training step."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from arelu_meta.data.batches import Batches
from arelu_meta.data.imageset import ImageSet
from arelu_meta.errors import RunError
from arelu_meta.training.supervised import SupervisedTrainer

WORKERS = 2


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures one by one, as torchvision's MNIST, SVHN and CIFAR give them: from an array to PIL, then transformed."""

    def __init__(self, images: ImageSet, *transform: Callable[[Any], Any]) -> None:
        self.arrays = images.images.permute(0, 2, 3, 1).squeeze(3).numpy()  # (N, H, W) or (N, H, W, C)
        self.labels = images.labels.tolist()
        steps = [*transform, transforms.ToTensor()]
        if images.mean:
            steps.append(transforms.Normalize(images.mean, images.std))
        self.transform = transforms.Compose(steps)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """Give one picture and its label."""
        return self.transform(Image.fromarray(self.arrays[number])), self.labels[number]


class GivenOrder:
    """A batch sampler that follows the order of a generator, as `Batches` draws it."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return (numbers.tolist() for numbers in self.batches.orders())

    def __len__(self) -> int:
        return len(self.batches)


def loader_like(batches: Batches, *transform: Callable[[Any], Any], images: ImageSet | None = None) -> DataLoader:
    """Make a DataLoader that gives the same batches, its workers kept between epochs; `images` if not those."""
    pictures = Pictures(images or batches.images, *transform)
    return DataLoader(
        pictures,
        batch_sampler=GivenOrder(batches),
        num_workers=WORKERS,
        persistent_workers=True,
    )


def plain_epoch(network: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    """Train one pass as every tutorial does."""
    network.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()


def train_on(trainer: SupervisedTrainer) -> None:
    """Train one more pass."""
    trainer.done = 0  # the settings say one epoch; each call is one
    next(trainer.epochs())


def check_same_weights(ours: nn.Module, theirs: Sequence[nn.Module]) -> None:
    """Make sure that the ways have done the same work: the same weights, to float32's rounding."""
    for other in theirs:
        for (name, one), two in zip(ours.state_dict().items(), other.state_dict().values(), strict=True):
            if not torch.allclose(one, two, rtol=1e-3, atol=1e-4):
                raise RunError(f"the ways differ in {name} by {(one - two).abs().max().item():.2g}: not the same work")
