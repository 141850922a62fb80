"""Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): images of a batch mixed with their neighbours, and labels.

Each image draws a share of its own, as timm does by `mixup_mode="elem"`; where both are on, each image draws which. The
neighbour is the one before it in the batch, as in torchvision.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from arelu_meta.data.rectangles import Rectangles


@dataclass(frozen=True)
class Mixing:
    """How batches are mixed.

    Args:
        mixup: both parameters of the beta distribution of an image's own share; 0: no mixup.
        cutmix: the same for the share of the area that an image keeps; 0: no CutMix.
        classes: number of classes.

    Example:
        >>> mixing = Mixing(mixup=0.2, cutmix=0.0, classes=3)
        >>> x, y = mixing(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), torch.Generator().manual_seed(0))
        >>> x.shape, y.shape, y.sum(1).tolist()
        (torch.Size([4, 3, 8, 8]), torch.Size([4, 3]), [1.0, 1.0, 1.0, 1.0])
    """

    mixup: float
    cutmix: float
    classes: int

    def __call__(self, pixels: Tensor, labels: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mix pixels (n, C, H, W) float and labels (n,): other pixels, and shares of the classes (n, classes)."""
        cut = torch.full((len(pixels),), bool(self.cutmix))
        if self.mixup and self.cutmix:
            cut = torch.rand(len(pixels), generator=random) < 0.5
        blended, cut_out = self._shares(self.mixup, cut, random), self._shares(self.cutmix, cut, random)
        rectangles = draw_cuts(cut_out, (pixels.shape[2], pixels.shape[3]), random)
        height, width = pixels.shape[2:]
        kept = 1 - (rectangles.height * rectangles.width).double() / (height * width)
        share = torch.where(cut, kept, blended).float()
        # Of each pixel, how much is the image's own: one share everywhere, or all outside of the rectangle.
        outside = (~rectangles.covers(height, width)).float()
        own = torch.where(cut.view(-1, 1, 1, 1), outside, share.view(-1, 1, 1, 1)).to(pixels.device)
        ones, share = F.one_hot(labels, self.classes).float(), share.unsqueeze(1).to(pixels.device)
        return own * pixels + (1 - own) * pixels.roll(1, 0), share * ones + (1 - share) * ones.roll(1, 0)

    @staticmethod
    def _shares(alpha: float, cut: Tensor, random: torch.Generator) -> Tensor:
        """Draw the shares (n,) of Beta(alpha, alpha); torch's own beta distribution takes no generator."""
        seed = int(torch.randint(2**62, (), generator=random))
        drawn = np.random.default_rng(seed).beta(alpha, alpha, len(cut)) if alpha else np.ones(len(cut))
        return torch.from_numpy(drawn)


def draw_cuts(shares: Tensor, size: tuple[int, int], random: torch.Generator) -> Rectangles:
    """Draw a rectangle for each image that leaves it a share of its area, around a centre anywhere in it.

    What reaches beyond the image is cut off, so that more of the image may be left, as in torchvision's `CutMix`.
    """
    (height, width), count = size, len(shares)
    centre_x = torch.randint(width, (count,), generator=random)
    centre_y = torch.randint(height, (count,), generator=random)
    half = 0.5 * (1 - shares).sqrt()
    half_width, half_height = (half * width).long(), (half * height).long()
    left, top = (centre_x - half_width).clamp(min=0), (centre_y - half_height).clamp(min=0)
    right, bottom = (centre_x + half_width).clamp(max=width), (centre_y + half_height).clamp(max=height)
    return Rectangles(top, left, bottom - top, right - left, torch.zeros(count, dtype=torch.bool))
