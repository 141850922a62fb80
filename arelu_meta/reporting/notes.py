"""What a reader of the numbers has to know: said in words, once, under the verdict."""

import math
import statistics

from arelu_meta.analysis.analyse import Analysis
from arelu_meta.analysis.arms import ALPHA, Comparison
from arelu_meta.analysis.permutation import smallest_p
from arelu_meta.analysis.settings import label, tuned_axes
from arelu_meta.reporting.numbers import Numbers, p_value

SEEDS_OF_A_SPREAD, ARMS_OF_A_USUAL_SPREAD = 3, 3
FAR_APART = 3.0  # times the median standard deviation of the arms


def notes(analysis: Analysis) -> list[str]:
    """Everything that limits the conclusions of this analysis."""
    findings = analysis.findings
    where: dict[str, list[str]] = {}
    for comparison in analysis.judged:
        for note in (*_permutation(comparison), *_seeds(comparison), *_scattered(comparison), *_choices(comparison)):
            where.setdefault(note, []).append(label(comparison.setting))
    everywhere = len(analysis.judged)
    found = [
        note + ("" if len(places) == everywhere else f" ({'; '.join(places)})") + "." for note, places in where.items()
    ]
    if tuned_axes(findings) and not analysis.matched:
        axes = ", ".join(tuned_axes(findings))
        found.append(f"There is no view with {axes} matched: choosing it per arm needs a validation metric.")
    if len(analysis.judged) > 1:
        found.append("p values are corrected over the arms of each table, not over the tables.")
    return found


def _permutation(comparison: Comparison) -> list[str]:
    sizes = {arm.difference.n for arm in comparison.arms if arm.difference is not None and not math.isnan(arm.p_holm)}
    if not sizes:
        return []
    size, tests = max(sizes), len(comparison.tested)
    if smallest_p(size) > ALPHA / tests:
        over = f"{ALPHA:g}" + (f" corrected over {tests} arms" if tests > 1 else "")
        return [
            f"With {size} seeds the exact permutation test cannot go below p = {p_value(smallest_p(size))}, so it"
            f" cannot confirm a difference at {over}; what is called detectable rests on the t test, which takes the"
            " differences over seeds for Gaussian"
        ]
    doubtful = [arm.name for arm in comparison.arms if arm.apart and arm.p_permutation_holm >= ALPHA]
    if doubtful:
        return [f"Detectable by the t test but not by the permutation test: {', '.join(doubtful)}"]
    return []


def _seeds(comparison: Comparison) -> list[str]:
    found = []
    lost = [f"{arm.name} (seed {', '.join(map(str, arm.lost))})" for arm in comparison.arms if arm.lost]
    if lost:
        found.append(f"Runs without a finite result are left out, which flatters their arm: {'; '.join(lost)}")
    most = max(arm.estimate.n for arm in comparison.arms)
    uneven = [f"{arm.name} (n = {arm.estimate.n})" for arm in comparison.arms if arm.estimate.n != most]
    if uneven:
        found.append(f"Fewer seeds than the {most} of the others, paired where seeds are shared: {', '.join(uneven)}")
    single = [arm.name for arm in comparison.arms if arm.estimate.n == 1]
    if single:
        found.append(f"One seed gives no interval and no test: {', '.join(single)}")
    unpaired = [arm.name for arm in comparison.arms if arm.difference is not None and arm.difference.n == 0]
    if unpaired:
        found.append(f"No seed shared with {comparison.baseline}: {', '.join(unpaired)}")
    constant = [arm.name for arm in comparison.arms if arm.difference is not None and arm.difference.constant]
    if constant:
        same = f"The difference to {comparison.baseline} is the same in every seed and has no spread to test with"
        found.append(f"{same}: {', '.join(constant)}")
    return found


def _scattered(comparison: Comparison) -> list[str]:
    """Arms whose seeds lie much further apart than those of most arms, as where some trainings collapse."""
    spreads = [arm.sd for arm in comparison.arms if arm.estimate.n >= SEEDS_OF_A_SPREAD]
    usual = statistics.median(spreads) if len(spreads) >= ARMS_OF_A_USUAL_SPREAD else math.nan
    found = []
    for arm in comparison.arms:
        if arm.estimate.n >= SEEDS_OF_A_SPREAD and arm.sd > FAR_APART * usual > 0:
            numbers = Numbers.fitting(arm.values)
            low, middle, high = (numbers.value(value) for value in arm.values.quantile([0.0, 0.5, 1.0]))
            found.append(
                f"The seeds of {arm.name} lie far apart, from {low} to {high} with a median of {middle}:"
                " look at them one by one before at their mean"
            )
    return found


def _choices(comparison: Comparison) -> list[str]:
    edge = [f"{arm.name} ({label(arm.choice.setting)})" for arm in comparison.arms if arm.choice and arm.choice.at_edge]
    found = [f"Best at the edge of the grid, a wider one might do better: {', '.join(edge)}"] if edge else []
    uneven = [arm.name for arm in comparison.arms if arm.choice and arm.choice.uneven]
    if uneven:
        names = ", ".join(uneven)
        found.append(f"Settings that were not all run with the same seeds, chosen on those they share: {names}")
    return found
