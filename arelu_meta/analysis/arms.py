"""What is known of an arm in a setting, and of all arms beside each other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from arelu_meta.analysis.episodes import EpisodePairs
from arelu_meta.analysis.estimates import Estimate
from arelu_meta.analysis.matching import Choice
from arelu_meta.analysis.paired import Paired
from arelu_meta.analysis.settings import Setting, label

ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class Arm:
    """One arm in one setting."""

    name: str
    setting: Setting
    values: pd.Series
    """The metric by seed, where it is a number."""
    lost: tuple[int, ...]
    """Seeds whose run finished without a number: diverged."""
    estimate: Estimate
    sd: float
    bootstrap: tuple[float, float]
    seconds: float
    published: pd.DataFrame
    further: Mapping[str, Estimate] = field(default_factory=dict)
    """Other metrics of the same runs."""
    choice: Choice | None = None
    """How the setting was chosen, where each arm has its own."""
    difference: Paired | None = None
    """To the baseline."""
    episodes: EpisodePairs | None = None
    """To the baseline, over the fixed test episodes."""
    p_holm: float = math.nan
    """Of the paired t test, corrected over the arms."""
    p_permutation_holm: float = math.nan
    detectable: float = math.nan
    """The difference to the baseline that would have been found with 80 % power at the corrected level."""

    @property
    def apart(self) -> bool:
        """Whether it differs detectably from the baseline."""
        return self.p_holm < ALPHA


@dataclass(frozen=True, eq=False)
class Comparison:
    """All arms in one setting, or each at the setting of its own choice; best first."""

    setting: Setting
    matched: bool
    arms: tuple[Arm, ...]
    baseline: str

    @property
    def label(self) -> str:
        """What tells this comparison from the others of the findings."""
        if not self.matched:
            return label(self.setting)
        own = ", ".join(axis for axis, _ in self.arms[0].setting if axis not in dict(self.setting))
        return "; ".join(part for part in (label(self.setting), f"each arm at its best {own}") if part)

    @property
    def tested(self) -> tuple[Arm, ...]:
        """Arms for which the test against the baseline could be made."""
        return tuple(arm for arm in self.arms if not math.isnan(arm.p_holm))

    @property
    def seeds(self) -> str:
        """How many seeds stand behind the arms: `n = 5 seeds`, `n = 3 to 5 seeds`."""
        sizes = {arm.estimate.n for arm in self.arms}
        low, high = min(sizes), max(sizes)
        return f"n = {low} seed{'s' * (low != 1)}" if low == high else f"n = {low} to {high} seeds"

    def arm(self, name: str | None) -> Arm | None:
        """Find an arm by name."""
        return next((arm for arm in self.arms if arm.name == name), None)
