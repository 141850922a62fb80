"""How numbers are written in reports: as many digits as they deserve, signs where they matter, a dash for none."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from arelu_meta.analysis.estimates import Estimate

NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class NumberFormat:
    """Writes values of one metric, all with the same digits."""

    decimals: int
    unit: str = ""

    @classmethod
    def for_values(cls, values: Iterable[float], unit: str = "") -> "NumberFormat":
        """Choose digits for values of this size: two for percent, four for shares, more for what is small.

        >>> NumberFormat.for_values([0.5, 0.9]).value(0.51234), NumberFormat.for_values([4e-5]).value(4e-5)
        ('0.5123', '0.00004000')
        """
        size = max((abs(value) for value in values if math.isfinite(value)), default=1.0)
        if unit == "%" or 1.5 < size < 1000:
            return cls(2, unit)
        small = 3 - math.floor(math.log10(size)) if size > 0 else 4
        return cls(max(4, small) if size <= 1.5 else 0, unit)

    @property
    def difference_unit(self) -> str:
        """The unit of a difference: of two percentages it is percentage points."""
        return "points" if self.unit == "%" else self.unit

    def amount(self, size: float) -> str:
        """Write the size of a difference as it was declared.

        >>> NumberFormat(2, "%").amount(1.0), NumberFormat(2, "%").amount(2.5), NumberFormat(2).amount(1.0)
        ('1 point', '2.5 points', '1')
        """
        unit = self.difference_unit
        return f"{size:g} {unit.removesuffix('s') if size == 1 else unit}".rstrip()

    def value(self, value: float) -> str:
        """Write a value."""
        return f"{self._steady(value):.{self.decimals}f}".replace("-", MINUS) if math.isfinite(value) else NONE

    def signed(self, value: float) -> str:
        """Write a difference with its sign: `+1.50`, `−0.30`; zero is never negative."""
        if not math.isfinite(value):
            return NONE
        written = f"{self._steady(value):+.{self.decimals}f}".replace("-", MINUS)
        return written if any(digit in "123456789" for digit in written) else written.replace(MINUS, "+")

    def _steady(self, value: float) -> float:
        """Leave out the last bits: a mean halfway between two digits has others with another version of NumPy."""
        return round(value, self.decimals + 6)

    def with_interval(self, estimate: Estimate, *, signed: bool = False) -> str:
        """Write `81.60 [77.20, 86.00]`, signed `+15.50 [+3.50, +27.50]`; the mean alone where there is none.

        An interval that was cut at 0 or 100 % is marked: `97.00 [91.00, 100.00] (cut)`.
        """
        write = self.signed if signed else self.value
        mean = write(estimate.mean)
        if math.isnan(estimate.low):
            return mean
        return f"{mean} [{write(estimate.low)}, {write(estimate.high)}]{' (cut)' if estimate.cut else ''}"


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


def p_text(p: float) -> str:
    """Write a p value into a sentence.

    >>> p_text(0.0625), p_text(0.00004)
    ('p = 0.0625', 'p < 0.001')
    """
    written = p_value(p)
    return f"p {written}" if written.startswith("<") else f"p = {written}"


def duration_text(seconds: float) -> str:
    """Write a duration in the unit one thinks of it in.

    >>> duration_text(42), duration_text(600), duration_text(9000)
    ('42 s', '10.0 min', '2.5 h')
    """
    if math.isnan(seconds):
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
