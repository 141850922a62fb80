"""A few-shot model with a start drawn from a seed and no training: enough to see how it adapts."""

from typing import Any

import torch

from arelu_meta.data.inputs import Inputs
from arelu_meta.kinds.few_shot.model import FewShotModel
from arelu_meta.kinds.few_shot.settings import LearnerSettings, build_learner
from arelu_meta.kinds.few_shot.spec import FewShotSpec

CONV4 = {"backbone": "conv4", "backbone_options": {"filters": 8}}
MEAN, STD = 0.3, 0.4


def tiny_model(
    *, ways: int = 3, channels: int = 1, side: int = 28, network: dict[str, Any] | None = None, **training: Any
) -> FewShotModel:
    spec = FewShotSpec.model_validate(
        {
            "task": "tiny",
            "data": {"dataset": "digits"},
            "episode": {"ways": ways},
            "network": network or {},
            "training": {"inner_lr": 0.1, "inner_steps": 3, **training},
        }
    )
    learner = build_learner(spec, channels, (side, side))
    inputs = Inputs(channels, side, mean=(MEAN,) * channels, std=(STD,) * channels)
    return FewShotModel(LearnerSettings.of(spec), learner, inputs)


def images(n: int, *, channels: int = 1, side: int = 28, seed: int = 0) -> torch.Tensor:
    """Pixels in [0, 1], (n, channels, side, side)."""
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(seed))
