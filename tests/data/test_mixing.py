"""Mixup and CutMix: pixels and labels are mixed by the same shares."""

import torch
from scipy import stats

from arelu_meta.data.mixing import Mixing, draw_cuts


def numbered(count: int, side: int = 10) -> torch.Tensor:
    """Image i is full of i."""
    return torch.arange(count).float().view(-1, 1, 1, 1).expand(-1, 1, side, side)


def before(count: int) -> torch.Tensor:
    return (torch.arange(count) - 1) % count


def test_mixup_blends_each_image_with_the_one_before_by_its_own_share():
    """Image i holds i and its label is i: with share s both are s i + (1 - s) (i - 1)."""
    x, y = Mixing(0.4, 0.0, 50)(numbered(50), torch.arange(50), torch.Generator().manual_seed(0))
    share = y[torch.arange(50), torch.arange(50)]
    assert torch.allclose(y.sum(1), torch.ones(50))
    assert torch.allclose(y[torch.arange(50), before(50)], 1 - share)
    wanted = share * torch.arange(50) + (1 - share) * before(50)
    assert torch.allclose(x, wanted.view(-1, 1, 1, 1).expand_as(x), atol=1e-4)
    assert len(share.unique()) > 40


def test_shares_of_mixup_have_the_beta_distribution():
    _, y = Mixing(0.4, 0.0, 2)(torch.zeros(4000, 1, 1, 1), torch.arange(4000) % 2, torch.Generator().manual_seed(0))
    own = y[torch.arange(4000), torch.arange(4000) % 2]
    assert stats.kstest(own.double().numpy(), stats.beta(0.4, 0.4).cdf).pvalue > 0.001


def test_cutmix_puts_a_rectangle_of_the_one_before_into_each_image():
    """The label's share is the share of the pixels that are the image's own."""
    x, y = Mixing(0.0, 1.0, 50)(numbered(50), torch.arange(50), torch.Generator().manual_seed(0))
    own = x == torch.arange(50).view(-1, 1, 1, 1)
    other = x == before(50).view(-1, 1, 1, 1)
    assert (own | other).all()
    assert torch.allclose(own.float().mean((1, 2, 3)), y[torch.arange(50), torch.arange(50)], atol=1e-6)
    rows, columns = other.any(3).sum(2), other.any(2).sum(2)
    assert torch.equal(other.sum((2, 3)), rows * columns)  # one rectangle


def test_cuts_by_hand():
    """Half of the area of 10x20 is kept: half sides of 0.5 sqrt(0.5) = 0.354, so 3 and 7 pixels around the centre."""
    cuts = draw_cuts(torch.full((300,), 0.5), (10, 20), torch.Generator().manual_seed(0))
    assert int(cuts.height.max()) == 6
    assert int(cuts.width.max()) == 14
    assert int(cuts.height.min()) == 3  # a centre in the first row
    assert int((cuts.top + cuts.height).max()) == 10
    assert int((cuts.left + cuts.width).max()) == 20
    whole = draw_cuts(torch.ones(5), (10, 20), torch.Generator())
    assert (whole.height * whole.width).tolist() == [0] * 5


def test_with_both_each_image_draws_which():
    x, y = Mixing(0.4, 1.0, 400)(numbered(400), torch.arange(400), torch.Generator().manual_seed(0))
    cut = ((x == torch.arange(400).view(-1, 1, 1, 1)) | (x == before(400).view(-1, 1, 1, 1))).flatten(1).all(1)
    assert abs(int(cut.sum()) - 200) < 80
    assert torch.allclose(y.sum(1), torch.ones(400))


def test_the_generator_decides():
    results = [
        Mixing(0.2, 1.0, 8)(numbered(8), torch.arange(8), torch.Generator().manual_seed(seed))[0] for seed in (0, 0, 1)
    ]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
