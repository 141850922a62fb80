"""What a checkpoint of meta-training holds, and going on from one."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from arelu_meta.learners.learner import Learner
from arelu_meta.seeding import generator_states


@dataclass
class MetaTraining:
    """What training has come to: everything a resumed run needs beyond the spec and the learner's state."""

    done: int = 0
    best: float = math.nan
    best_state: dict[str, Tensor] = field(default_factory=dict)
    selected: int = 0
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: {"train": []})


def checkpoint_of(
    training: MetaTraining, state: nn.Module, optimizer: torch.optim.Optimizer, random: torch.Generator
) -> dict[str, Any]:
    """Give what a checkpoint keeps."""
    return {
        "training": vars(training),
        "state": state.state_dict(),
        "optimizer": optimizer.state_dict(),
        "episode_random": random.get_state(),
        **generator_states(),
    }


def restored(
    checkpoint: dict[str, Any], learner: Learner, optimizer: torch.optim.Optimizer, random: torch.Generator
) -> MetaTraining:
    """Go back to where a checkpoint was taken, and give what training had come to."""
    learner.load_state(checkpoint["state"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    random.set_state(checkpoint["episode_random"])
    return MetaTraining(**checkpoint["training"])
