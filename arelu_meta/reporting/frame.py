"""Every number of an analysis in one table, one row per arm and setting: what table.csv holds."""

import math

import pandas as pd

from arelu_meta.analysis.analyse import Analysis
from arelu_meta.analysis.arms import Arm
from arelu_meta.analysis.published import published_sources, published_value
from arelu_meta.reporting.table import role


def numbers_of(arm: Arm) -> dict[str, float]:
    """All numbers of an arm by name; NaN where there is none."""
    pair, episodes = arm.difference, arm.episodes
    return {
        "n": arm.estimate.n,
        "mean": arm.estimate.mean,
        "sd": arm.sd,
        "ci95_low": arm.estimate.low,
        "ci95_high": arm.estimate.high,
        "bca95_low": arm.bootstrap[0],
        "bca95_high": arm.bootstrap[1],
        "difference": pair.estimate.mean if pair else math.nan,
        "difference_n": pair.n if pair else math.nan,
        "difference_sd": pair.sd if pair else math.nan,
        "difference_ci95_low": pair.estimate.low if pair else math.nan,
        "difference_ci95_high": pair.estimate.high if pair else math.nan,
        "difference_bca95_low": pair.bootstrap[0] if pair else math.nan,
        "difference_bca95_high": pair.bootstrap[1] if pair else math.nan,
        "p_t": pair.p_t if pair else math.nan,
        "p_t_holm": arm.p_holm,
        "p_permutation": pair.p_permutation if pair else math.nan,
        "p_permutation_holm": arm.p_permutation_holm,
        "detectable": arm.detectable,
        "episodes_difference": episodes.together.mean if episodes else math.nan,
        "episodes_ci95_low": episodes.together.low if episodes else math.nan,
        "episodes_ci95_high": episodes.together.high if episodes else math.nan,
        "episodes_n": episodes.together.n if episodes else math.nan,
    }


def frame(analysis: Analysis) -> pd.DataFrame:
    """Lay all comparisons out below each other; `view` tells fixed settings from matched ones."""
    findings = analysis.findings
    rows = []
    for comparison in analysis.all:
        sources = published_sources(comparison.arms)
        for arm in comparison.arms:
            published = {
                "published" if number == 1 else f"published_{number}": published_value(arm, source)
                for number, source in enumerate(sources, 1)
            }
            rows.append(
                {
                    "view": "matched" if comparison.matched else "fixed",
                    **{axis: arm.name if axis == findings.arm else dict(arm.setting)[axis] for axis in findings.axes},
                    "role": role(findings, arm.name),
                    "metric": findings.metric,
                    **numbers_of(arm),
                    **published,
                    "seconds": arm.seconds,
                }
            )
    return pd.DataFrame(rows)
