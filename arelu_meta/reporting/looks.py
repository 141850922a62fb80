"""How arms look in figures: one colour and dash per arm, the same in every figure, those that matter most in front."""

from dataclasses import dataclass

from arelu_meta.analysis.analyse import Analysis
from arelu_meta.analysis.controls import explained_arm
from arelu_meta.reporting.table import role

IN_FRONT = 7
DASHES = ("", "6 3", "2 2", "8 3 2 3")
ORDER = (6, 1, 0, 2, 3, 4, 5)  # of the palette: black for the baseline, vermilion for the explained arm


@dataclass(frozen=True)
class Look:
    """An arm's place in the palette and in the order of drawing."""

    name: str
    role: str
    colour: int
    dash: str
    in_front: bool
    """Whether it has a colour to itself, and is shown from the start where many lines would cover each other."""


def looks(analysis: Analysis) -> list[Look]:
    """Baseline, explained arm, controls, then the others from the best on, by their places in all comparisons."""
    findings, judged = analysis.findings, analysis.judged
    places: dict[str, list[int]] = {}
    for comparison in judged:
        for place, arm in enumerate(comparison.arms):
            places.setdefault(arm.name, []).append(place)
    best = sorted(places, key=lambda name: sum(places[name]) / len(places[name]))
    subjects = [explained_arm(findings, comparison) for comparison in judged]
    first = [name for name in (findings.baseline, *subjects, *findings.controls) if name in places]
    names = list(dict.fromkeys([*filter(None, first), *best]))
    return [
        Look(name, role(findings, name), ORDER[number % 7], DASHES[number // 7 % len(DASHES)], number < IN_FRONT)
        for number, name in enumerate(names)
    ]
