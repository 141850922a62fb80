"""Simulated sweeps: findings as a comparison would collect them, drawn from known truths. Never a result."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from arelu_meta.analysis.findings import Findings

TRUTH = {
    "relu": 66.0,
    "elu": 72.0,
    "prelu": 68.0,
    "arelu": 81.0,
    "arelu_frozen": 81.5,
    "relu_gain": 80.0,
    "arelu_unit": 67.0,
}
CONTROLS = {"arelu_frozen": "learning", "relu_gain": "shape and learning", "arelu_unit": "gain"}
PROTOCOL = {
    "task": "digits, 5-way 1-shot",
    "protocol": "sound",
    "data": "digits, sha256 0123456789abcdef",
    "command": "python -m arelu_meta.compare maml_digits",
}


def sweep(
    truth: Mapping[str, float] = TRUTH,
    *,
    seeds: Sequence[int] = range(5),
    seed_sd: float = 3.0,
    arm_sd: float = 1.5,
    lrs: Sequence[float] = (),
    best_lr: Mapping[str, float] | None = None,
    episodes: int = 0,
    steps: int = 0,
    random_seed: int = 0,
    **fields: Any,
) -> Findings:
    """Draw accuracies: the arm's truth + a seed's luck that all arms share + luck of its own.

    With learning rates an arm loses 8 points per squared decade from its best one, on validation as on test.
    """
    random = np.random.default_rng(random_seed)
    luck = {seed: random.normal(0, seed_sd) for seed in seeds}
    rows, curves, results = [], [], {}
    for arm, mean in truth.items():
        for lr in lrs or (None,):
            loss = 0.0 if lr is None else 8.0 * np.log10(lr / (best_lr or {}).get(arm, 0.01)) ** 2
            for seed in seeds:
                value = float(mean - loss + luck[seed] + random.normal(0, arm_sd))
                run_id = f"{arm}-{lr}-{seed}"
                axes = {"activation": arm} | ({} if lr is None else {"lr": lr})
                if episodes:
                    drawn = np.clip(random.normal(value, 12, (episodes, 1)), 0, 100)
                    value = float(drawn.mean())
                    results[run_id] = np.hstack([np.full((episodes, 1), 20.0), drawn])
                chosen_by = value + float(random.normal(0, 0.5))
                rows.append(
                    axes
                    | {
                        "seed": seed,
                        "test/accuracy": value,
                        "validation/accuracy": chosen_by,
                        "run_id": run_id,
                        "seconds": 60.0,
                    }
                )
                for step in range(steps):
                    height = 20 + (value - 20) * (1 - np.exp(-3 * step / max(steps - 1, 1)))
                    noisy = float(height + random.normal(0, 1))
                    curves.append(
                        axes | {"seed": seed, "metric": "validation/accuracy", "step": 10 * step, "value": noisy}
                    )
    given: dict[str, Any] = {
        "name": "simulated",
        "title": "Which activation adapts fastest? (simulated)",
        "question": "Is it the shape, the learning or the gain?",
        "runs": pd.DataFrame(rows),
        "axes": ("activation", "lr") if lrs else ("activation",),
        "arm": "activation",
        "baseline": "relu",
        "metric": "test/accuracy",
        "validation_metric": "validation/accuracy",
        "controls": {arm: lacks for arm, lacks in CONTROLS.items() if arm in truth},
        "curves": pd.DataFrame(curves) if curves else None,
        "episodes": results,
        "protocol": PROTOCOL,
        "units": {"test/accuracy": "%", "validation/accuracy": "%", "test/best_accuracy": "%"},
    }
    return Findings(**(given | fields))
