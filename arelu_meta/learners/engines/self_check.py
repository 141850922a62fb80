"""Is a network's meta-gradient under `vmap` the right one? Found out by computing it both ways."""

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from arelu_meta.data.episodes import Episode
from arelu_meta.errors import InputError, first_line
from arelu_meta.learners.inner_loop import InnerRule, episode_losses

IMAGES = (2, 4)  # of each half of the two episodes; what two images find wrong, four confirm or clear
LR = 0.1  # large enough that second derivatives are felt, whatever rate the network is trained with
TOLERANCE = 1e-6  # of a parameter's gradient; rounding is a millionth of that
SMALL = 1e-3  # of the whole gradient: a parameter whose own is smaller is measured by this
ANOTHER = "gives another meta-gradient"
Logits = Callable[[nn.Module, InnerRule, Episode], Tensor]


def difference(network: nn.Module, rule: InnerRule, episodes: Episode, *, doubted: Logits, trusted: Logits) -> str:
    """Compare two ways to compute the meta-gradient, on a copy of the network, in float64, on two small episodes.

    Args:
        network: the network; it is left alone.
        rule: how it adapts; two steps at most are taken.
        episodes: a batch, of which a few images are used.
        doubted: gives query logits in the way that may be wrong.
        trusted: gives them in the way that is right; both draw the same random numbers in every episode.

    Returns:
        What is wrong with the doubted way; empty where the gradients agree.
    """
    if not any(parameter.requires_grad for parameter in network.parameters()):
        return ""  # nothing is learned, so no gradient can be wrong
    lr: float | dict[str, Tensor] = LR
    if isinstance(rule.lr, Mapping):
        lr = {name: torch.full_like(rates, LR, dtype=torch.float64) for name, rates in rule.lr.items()}
    rule = replace(rule, lr=lr, steps=min(rule.steps, 2), clip_norm=None)
    devices, verdict = [episodes.support_x.device] if episodes.support_x.is_cuda else [], ""
    with torch.random.fork_rng(devices), torch.enable_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="There is a performance drop")  # vmap loops over what it cannot do
        for images in IMAGES:
            verdict = _compare(network, rule, _small(episodes, images), doubted, trusted)
            if not verdict.startswith(ANOTHER):
                break
    return verdict


def _compare(network: nn.Module, rule: InnerRule, episodes: Episode, doubted: Logits, trusted: Logits) -> str:
    try:
        copied = copy.deepcopy(network).double()
        right = _meta_gradient(copied, rule, episodes, trusted)
    except InputError:
        raise
    except Exception as error:  # whatever a module of others raises
        return f"cannot be checked: {_beginning(error)}"
    try:
        found = _meta_gradient(copied, rule, episodes, doubted)
    except Exception as error:
        return f"fails: {_beginning(error)}"
    whole = torch.stack([gradient.norm() for gradient in right.values()]).norm()
    off = {name: (found[name] - g).norm() / torch.maximum(g.norm(), SMALL * whole) for name, g in right.items()}
    worst = max(off, key=lambda name: off[name].nan_to_num(torch.inf).item())
    wrong = not off[worst] <= TOLERANCE  # NaN is
    return f"{ANOTHER}: that of {worst} is off by {100 * off[worst]:.2g} %" if wrong else ""


def _beginning(error: Exception) -> str:
    """What torch says of a fault in its first sentence; more would not fit a line."""
    return first_line(error).partition(". ")[0]


def _small(episodes: Episode, images: int) -> Episode:
    """Take the first and the last episode, and of each half a few images from first to last, in float64."""

    def half(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.linspace(0, x.shape[1] - 1, min(images, x.shape[1])).round().long()
        few, labels = (
            half.double() if half.is_floating_point() else half for half in (x[[0, -1]][:, rows], y[[0, -1]][:, rows])
        )
        return few, labels

    support, query = episodes.tensors()[:2], episodes.tensors()[2:]
    return Episode(*half(*support), *half(*(query if query[0].shape[1] else support)))


def _meta_gradient(network: nn.Module, rule: InnerRule, episodes: Episode, logits: Logits) -> dict[str, Tensor]:
    """Give the gradient of the summed query loss by parameter, zeros where there is none."""
    answers = logits(network, rule, episodes)[:, -1]
    loss = episode_losses(answers, episodes.query_y, rule.loss).sum()
    learned = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(loss, list(learned.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(learned, found, strict=True))
