"""A numeric axis: its range, its round numbers, and where a value lies on it in per cent."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator


@dataclass(frozen=True)
class Scale:
    """From the value at the left (or bottom) end to the one at the right (or top)."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether only whole numbers have a meaning: there is no half step."""

    @classmethod
    def around(
        cls, values: Iterable[float], *, log: bool = False, whole: bool = False, margin: float = 0.04
    ) -> "Scale":
        """Cover all finite values with a margin; a single value gets room to both sides.

        >>> Scale.around([0.0, 10.0], margin=0.1)
        Scale(low=-1.0, high=11.0, log=False, whole=False)
        """
        finite = [math.log10(value) if log else value for value in values if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        room = margin * (high - low) if high > low else 0.5 * abs(high) or 0.5
        return cls(low - room, high + room, log, whole)

    def place(self, value: float) -> float:
        """Per cent from the low end: below 0 and above 100 for values outside."""
        shown = math.log10(value) if self.log else value
        return 100 * (shown - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers inside; whole powers of ten on a logarithmic axis."""
        if self.log:
            return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]
        ticks = (float(tick) for tick in MaxNLocator(most, integer=self.whole).tick_values(self.low, self.high))
        return [tick for tick in ticks if self.low <= tick <= self.high]

    def written(self, most: int = 5) -> list[tuple[float, str]]:
        """The ticks with their labels, all with the same digits."""
        ticks = self.ticks(most)
        if self.log:
            return [(tick, f"{tick:g}") for tick in ticks]
        decimals = next((d for d in range(6) if all(math.isclose(t, round(t, d), abs_tol=1e-9) for t in ticks)), 6)
        return [(tick, f"{tick:.{decimals}f}".replace("-", "\N{MINUS SIGN}")) for tick in ticks]
