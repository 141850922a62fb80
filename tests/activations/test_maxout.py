import pytest
import torch

from arelu_meta.activations.maxout import Maxout, MaxoutPaper, maxout
from arelu_meta.errors import InputError


def test_largest_of_neighbouring_channels():
    """Channels (1, 3 | -2, -5 | 0, 0): 3, -2, 0."""
    x = torch.tensor([[1.0, 3.0, -2.0, -5.0, 0.0, 0.0]])
    assert maxout(x, 2).tolist() == [[3.0, -2.0, 0.0]]
    assert maxout(x, 3).tolist() == [[3.0, 0.0]]


def test_planes_stay_apart():
    """Each position of the plane has a maximum of its own."""
    x = torch.stack([torch.tensor([[0.0, 5.0]]), torch.tensor([[3.0, 1.0]])]).unsqueeze(0)  # (1, 2, 1, 2)
    assert maxout(x, 2).tolist() == [[[[3.0, 5.0]]]]


def test_only_the_winner_gets_a_gradient():
    x = torch.tensor([[1.0, 3.0, -2.0, -5.0]], requires_grad=True)
    maxout(x, 2).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 1.0, 0.0]]


def test_states_how_much_wider_its_input_is():
    assert Maxout(3).input_multiple == 3
    assert Maxout(3)(torch.zeros(2, 6)).shape == (2, 2)


def test_channels_must_divide():
    with pytest.raises(InputError, match="needs a multiple of 2 channels, not 3"):
        maxout(torch.zeros(1, 3), 2)


@pytest.mark.parametrize("pieces", [1, 0])
def test_one_piece_is_refused(pieces: int):
    with pytest.raises(InputError, match=f"at least 2, not {pieces}"):
        Maxout(pieces)


def test_the_authors_version_is_the_identity():
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)
    assert torch.equal(MaxoutPaper()(x), x)
