"""How numbers are written in reports: as many digits as they deserve, signs where they matter, words for none."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from arelu_meta.analysis.estimates import Estimate

NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Numbers:
    """Writes values of one metric, all with the same digits."""

    decimals: int
    unit: str = ""

    @classmethod
    def fitting(cls, values: Iterable[float], unit: str = "") -> "Numbers":
        """Choose digits for values of this size: two for percent, four for shares, more for what is small.

        >>> Numbers.fitting([0.5, 0.9]).value(0.51234), Numbers.fitting([4e-5]).value(4e-5)
        ('0.5123', '0.00004000')
        """
        size = max((abs(value) for value in values if math.isfinite(value)), default=1.0)
        if unit == "%" or 1.5 < size < 1000:
            return cls(2, unit)
        small = 3 - math.floor(math.log10(size)) if size > 0 else 4
        return cls(max(4, small) if size <= 1.5 else 0, unit)

    @property
    def points(self) -> str:
        """The unit of a difference: of two percentages it is percentage points."""
        return "points" if self.unit == "%" else self.unit

    def value(self, value: float) -> str:
        """Write a value."""
        return f"{value:.{self.decimals}f}".replace("-", MINUS) if math.isfinite(value) else NONE

    def signed(self, value: float) -> str:
        """Write a difference with its sign: `+1.50`, `−0.30`."""
        if not math.isfinite(value):
            return NONE
        written = f"{value:+.{self.decimals}f}".replace("-", MINUS)
        return written if any(digit in "123456789" for digit in written) else written.replace(MINUS, "+")

    def with_unit(self, value: float) -> str:
        """Write a value into a sentence: `81.60 %`."""
        return f"{self.value(value)} {self.unit}".rstrip()

    def difference(self, value: float) -> str:
        """Write a difference into a sentence: `+15.50 points`."""
        return f"{self.signed(value)} {self.points}".rstrip()

    def with_interval(self, estimate: Estimate) -> str:
        """Write `81.60 [77.20, 86.00]`, or the mean alone where there is no interval."""
        mean = self.value(estimate.mean)
        return mean if math.isnan(estimate.low) else f"{mean} [{self.value(estimate.low)}, {self.value(estimate.high)}]"

    def signed_with_interval(self, estimate: Estimate) -> str:
        """Write `+15.50 [+3.50, +27.50]`."""
        mean = self.signed(estimate.mean)
        if math.isnan(estimate.low):
            return mean
        return f"{mean} [{self.signed(estimate.low)}, {self.signed(estimate.high)}]"


def unit_of(metric: str, values: Iterable[float]) -> str:
    """The unit that a metric is given in, as far as its name and size tell: a share above 1 is in per cent.

    >>> unit_of("test/accuracy", [81.6]), unit_of("test/accuracy", [0.816]), unit_of("train/loss", [2.3])
    ('%', '', '')
    """
    name = metric.rsplit("/", 1)[-1]
    in_percent = any(value > 1 for value in values if math.isfinite(value))
    return "%" if in_percent and ("accuracy" in name or "dice" in name) else ""


def p_value(p: float) -> str:
    """Write a p value: to four places where it decides, to two where it does not.

    >>> p_value(0.0625), p_value(0.00004), p_value(0.5)
    ('0.0625', '< 0.001', '0.50')
    """
    if math.isnan(p):
        return NONE
    if p < 0.001:
        return "< 0.001"
    return f"{p:.4f}".rstrip("0") if p < 0.1 else f"{p:.2f}"


def stated_p(p: float) -> str:
    """Write a p value into a sentence: `p = 0.023`, `p < 0.001`."""
    written = p_value(p)
    return f"p {written}" if written.startswith("<") else f"p = {written}"


def duration(seconds: float) -> str:
    """Write a duration in the unit one thinks of it in.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10.0 min', '2.5 h')
    """
    if math.isnan(seconds):
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
