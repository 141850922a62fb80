"""The verdict in words: two sentences that follow from the numbers and from nothing else, and the evidence for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from arelu_meta.analysis.arms import Arm, ArmComparison, count_better_and_worse, is_better
from arelu_meta.analysis.controls import Control, against_controls, explained_arm
from arelu_meta.analysis.decisions import ALPHA, Outcome, PairedTest
from arelu_meta.analysis.findings import Findings
from arelu_meta.analysis.rates import AdvantageChange
from arelu_meta.analysis.settings import setting_label
from arelu_meta.analysis.speed import time_unit
from arelu_meta.reporting.numbers import NumberFormat, p_text

MOST_NAMED = 3  # arms that a sentence names beside those it is about


@dataclass(frozen=True)
class Verdict:
    """What a comparison comes to."""

    sentences: str
    """Whether arms differ from the baseline, and what the controls explain of it."""
    evidence: str = ""
    """The test and its circumstances, what else was found, and what was not tried."""
    about: str = ""
    """The setting, where a report has several."""


def counted(number: int, noun: str) -> str:
    """Write how many there are.

    >>> counted(1, "arm"), counted(4, "arm")
    ('1 arm', '4 arms')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def listed(words: Sequence[str], *, verb: bool = False) -> str:
    """Write a list into a sentence, if wanted with the verb that goes with it.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a"], verb=True)
    ('a', 'a, b and c', 'a is')
    """
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{text} {'is' if len(words) == 1 else 'are'}" if verb else text


def make_verdict(findings: Findings, comparison: ArmComparison, numbers: NumberFormat, about: str = "") -> Verdict:
    """Judge a comparison."""
    baseline = comparison.arm(findings.baseline)
    texts = [comparison.label, comparison.seeds]
    if "protocol" in findings.protocol:
        texts.append(f"protocol {findings.protocol['protocol']}")
    if findings.budget < 1:
        texts.append(f"only {100 * findings.budget:g} % of the full training")
    circumstances = ", ".join(filter(None, texts))
    evidence = f"{findings.metric}: {circumstances}."
    if baseline is None or math.isnan(baseline.estimate.mean):
        reason = f"no run of the baseline {findings.baseline} has a result"
        return Verdict(f"Nothing can be compared: {reason}.", evidence, about)
    if all(arm is baseline or not arm.estimate.n for arm in comparison.arms):
        reason = f"{findings.baseline} is the only arm with a result"
        return Verdict(f"Nothing can be compared: {reason}.", evidence, about)
    if not comparison.tested:
        return Verdict(_untested(findings, comparison, numbers), evidence, about)
    subject = comparison.arm(explained_arm(findings, comparison))
    named, first = _difference_sentence(findings, comparison, subject, numbers)
    controls = against_controls(findings, comparison)
    if subject is not None and controls:
        second = _control_sentence(findings, subject, controls)
    else:
        second = _seeds_sentence(findings, named, numbers)
    return Verdict(f"{first} {second}".rstrip(), _evidence(findings, comparison, named, numbers, circumstances), about)


def _untested(findings: Findings, comparison: ArmComparison, numbers: NumberFormat) -> str:
    """Say why no test could be made, and the best mean."""
    best, differences = comparison.arms[0], [arm.difference for arm in comparison.arms if arm.difference is not None]
    mean = f"The best mean is that of {best.name}, {f'{numbers.value(best.estimate.mean)} {numbers.unit}'.rstrip()}."
    if not any(difference.n for difference in differences):
        return f"No arm shares a seed with {findings.baseline}, so that nothing can be compared in pairs. {mean}"
    if any(difference.constant for difference in differences):
        return f"Differences to {findings.baseline} do not vary over seeds and cannot be tested. {mean}"
    return f"A single seed cannot tell a difference to {findings.baseline} from chance. {mean}"


def _difference_sentence(
    findings: Findings, comparison: ArmComparison, subject: Arm | None, numbers: NumberFormat
) -> tuple[Arm | None, str]:
    """Say whether the explained arm, or else how many arms, differ from the baseline; give the arm whose size is told.

    Without an explained arm that is the best of those that differ, or the worst where none is better.
    """
    good, bad = count_better_and_worse(findings, comparison.tested)
    arms, differing = counted(len(comparison.tested), "arm"), [arm for arm in comparison.tested if arm.differs]
    named = subject if subject in comparison.tested else None
    if named is not None and named.test is not None:
        return named, _outcome_sentence(findings, named, named.test, comparison.arm(findings.baseline), numbers)
    declared = findings.explained if findings.explained is not None else findings.primary
    lacking = f"No training of {declared} can be compared. " if declared is not None else ""
    if differing:
        named = max(differing, key=lambda arm: _gain(findings, arm) if good else -_gain(findings, arm))
        verb = "is" if good == 1 else "are"
        counts = f"{good} {verb} detectably better than {findings.baseline} on {findings.metric} and {bad} worse"
        what = f"Of {arms}, {counts}; the {'best' if good else 'worst'} is {named.name}"
    if named is None or named.test is None:
        outcomes = [arm.outcome for arm in comparison.tested]
        equal = outcomes.count(Outcome.EQUIVALENT) + outcomes.count(Outcome.IDENTICAL)
        failing = outcomes.count(Outcome.FAILING)
        more = f", {equal} equivalent within {numbers.amount(findings.margin)}" if equal and findings.margin else ""
        more += f", {failing} undecided because trainings fail" if failing else ""
        none = f"of {arms} none differs from {findings.baseline} on {findings.metric}"
        return None, f"{lacking}No difference is detectable: {none}{more}."
    return named, f"{lacking}{what}: {_size(named.test, numbers)}."


def _gain(findings: Findings, arm: Arm) -> float:
    """By how much an arm is better than the baseline."""
    mean = arm.difference.estimate.mean if arm.difference is not None else math.nan
    return mean if findings.higher_is_better else -mean


def _size(test: PairedTest, numbers: NumberFormat, *, equivalence: bool = False) -> str:
    """Write a difference with the interval of the test that decided about it."""
    found = test.equivalence_interval if equivalence else test.interval
    size = f"{numbers.signed(found.mean)} {numbers.difference_unit}".rstrip()
    if math.isnan(found.low):
        return size
    name = f"{'simultaneous ' if test.family > 1 else ''}{90 if equivalence else 95} % interval"
    return f"{size}, {name} {numbers.signed(found.low)} to {numbers.signed(found.high)}"


def _outcome_sentence(
    findings: Findings, arm: Arm, test: PairedTest, baseline: Arm | None, numbers: NumberFormat
) -> str:
    """Say what the comparison of one arm with the baseline comes to."""
    both, metric = f"{arm.name} and {findings.baseline}", findings.metric
    if test.outcome is Outcome.IDENTICAL:
        return f"{both} gave identical results on {metric} in all {test.difference.n} seeds."
    if test.outcome is Outcome.DIFFERENT:
        how = "better" if is_better(findings, test.difference) else "worse"
        less = (
            f", which is within the margin of {numbers.amount(test.margin)}"
            if test.margin and test.p_equivalence < ALPHA
            else ""
        )
        what = f"{arm.name} is detectably {how} than {findings.baseline} on {metric}"
        return f"{what}: {_size(test, numbers)}{less}."
    if test.outcome is Outcome.EQUIVALENT and test.margin:
        within = f"equivalent within {numbers.amount(test.margin)}"
        return f"{both} are {within} on {metric}: {_size(test, numbers, equivalence=True)}."
    if test.outcome is Outcome.FAILING and baseline is not None:
        verb, why = ("get there", "some never do") if time_unit(metric) else ("learned", "trainings fail")
        learned = f"{learned_text(arm)} trainings of {arm.name} and {learned_text(baseline)} of {baseline.name} {verb}"
        return f"Undecided, because {why}: {learned}, and these differ on {metric} by {_size(test, numbers)}."
    return f"Undecided whether {arm.name} differs from {findings.baseline} on {metric}: {_size(test, numbers)}."


def number_format(findings: Findings, arms: Sequence[Arm]) -> NumberFormat:
    """How the tested metric of these arms is written."""
    return NumberFormat.for_values((arm.estimate.mean for arm in arms), findings.units.get(findings.metric, ""))


def speed_sentence(findings: Findings, comparison: ArmComparison) -> str:
    """Say what a measure of speed comes to for the explained arm; empty where that is not tested."""
    arm, baseline = comparison.arm(explained_arm(findings, comparison)), comparison.arm(findings.baseline)
    if arm is None or arm not in comparison.tested or arm.test is None:
        return ""
    return _outcome_sentence(findings, arm, arm.test, baseline, number_format(findings, comparison.arms))


def learned_text(arm: Arm) -> str:
    """Write how many trainings of an arm learned: `3 of 5`."""
    return f"{len(arm.results) - len(arm.failed)} of {len(arm.results)}"


def _control_sentence(findings: Findings, subject: Arm, controls: list[Control]) -> str:
    """Say which controls differ from the arm; where it has an advantage, that tells what the advantage needs."""
    differing = [control for control in controls if control.differs]
    ahead = [control for control in differing if is_better(findings, control.test.difference)]
    behind = [control for control in differing if control not in ahead]
    equal = [one for one in controls if one.test.outcome in (Outcome.EQUIVALENT, Outcome.IDENTICAL)]
    alike = [control for control in controls if control not in differing and control not in equal]
    clauses = []
    if subject.differs and subject.difference is not None and is_better(findings, subject.difference):
        groups = (
            (ahead, "it is worse"),
            (behind, "it is better"),
            (equal, "it is equivalent"),
            (alike, "no difference is detectable"),
        )
        for group, words in groups:
            lacking = ", or ".join(f"without {control.lacks}" for control in group) + "," * (len(group) > 1)
            clauses += [f"{lacking} {words}"] if group else []
        text = "; ".join(clauses)
        return f"{text[0].upper()}{text[1:]}."
    if not differing and not equal:
        return f"None of its controls differs detectably from {subject.name}."
    groups = (
        (behind, "detectably better"),
        (ahead, "detectably worse"),
        (equal, "equivalent"),
        (alike, "not detectably different"),
    )
    for group, words in groups:
        clauses += [f"{listed([control.arm for control in group], verb=True)} {words}"] if group else []
    return f"Of its controls, {'; '.join(clauses)}."


def _seeds_sentence(findings: Findings, arm: Arm | None, numbers: NumberFormat) -> str:
    """Say what an undecided comparison lacks: seeds, or a margin; empty where it is decided, or over splits."""
    if arm is None or arm.test is None or arm.outcome is not Outcome.UNDECIDED or findings.correction:
        return ""
    if findings.margin is None:
        return "No margin is declared, so that the two cannot be called equivalent."
    margin = numbers.amount(findings.margin)
    if arm.test.further_seeds is None:
        return f"More than 10,000 seeds would be needed to find a difference of {margin}."
    if not arm.test.further_seeds:
        return f"The seeds are enough to find a difference of {margin} with 80 % power."
    more = counted(arm.test.further_seeds, "further seed")
    return f"About {more} would be needed to find a difference of {margin} with 80 % power."


def _evidence(
    findings: Findings, comparison: ArmComparison, arm: Arm | None, numbers: NumberFormat, circumstances: str
) -> str:
    """What a verdict rests on, for the arm whose difference is stated; None where no arm differs."""
    explained = arm is not None and arm.name == explained_arm(findings, comparison)
    over = f", corrected over {comparison.family} arms" if comparison.family > 1 else ""
    if arm is None or arm.test is None:
        p = f"no p below {ALPHA:g}{over}"
    else:
        p = p_text(arm.test.p) + ("" if explained else f" for {arm.name}")
        p += ", as the primary comparison not corrected" if arm.name == findings.primary else over
        if arm.outcome is Outcome.EQUIVALENT:
            p += f"; two one-sided tests against the margin give {p_text(arm.test.p_equivalence)}"
    learned = " of the trainings that learned" if arm is not None and arm.outcome is Outcome.FAILING else ""
    texts = [f"The paired t test{learned} gives {p} ({circumstances})."]
    if arm is not None and explained:
        # Without controls the second sentence says what is lacking.
        lacking = _seeds_sentence(findings, arm, numbers) if against_controls(findings, comparison) else ""
        texts += [lacking] if lacking else []
        others = [other for other in comparison.tested if other is not arm]
        texts += [f"Of {counted(len(others), 'arm')} beside {arm.name}, {_others(findings, others)}."] if others else []
    return " ".join([*texts, *_untried(findings, comparison)])


def change_sentence(
    findings: Findings, comparison: ArmComparison, changes: Sequence[AdvantageChange], numbers: NumberFormat
) -> str:
    """Say what becomes of the advantage at the smallest shared setting; empty where that is not tested by itself."""
    change = next((one for one in changes if one.declared), None)
    if change is None or change.test.outcome not in (Outcome.DIFFERENT, Outcome.UNDECIDED):
        return ""
    subject = explained_arm(findings, comparison)
    there, own = (f"{numbers.signed(size)} {numbers.difference_unit}".rstrip() for size in (change.there, change.own))
    found = f"changes by {_size(change.test, numbers)} ({p_text(change.test.p)})"
    if change.test.outcome is Outcome.UNDECIDED:
        found = f"does not change detectably: {_size(change.test, numbers)} ({p_text(change.test.p)})"
    where = f"{findings.baseline} at {setting_label(change.setting)}"
    return f"From {there} over {where} to {own} at own settings, {subject}'s lead {found}."


def _others(findings: Findings, arms: Sequence[Arm]) -> str:
    """Count the arms that are detectably better and worse than the baseline; a few are named."""
    differing = [(arm.name, is_better(findings, arm.difference)) for arm in arms if arm.differs and arm.difference]
    good, bad = ([name for name, better in differing if better is wanted] for wanted in (True, False))
    names = [f" ({listed(group)})" if 0 < len(group) <= MOST_NAMED else "" for group in (good, bad)]
    verb = "is" if len(good) == 1 else "are"
    return f"{len(good)} {verb} detectably better than {findings.baseline}{names[0]} and {len(bad)} worse{names[1]}"


def _untried(findings: Findings, comparison: ArmComparison) -> list[str]:
    """Name those of the two arms a verdict is about that had no choice, or chose the smallest or largest on offer."""
    names = (findings.baseline, explained_arm(findings, comparison))
    arms = [arm for arm in map(comparison.arm, names) if arm is not None]
    single = [arm.name for arm in arms if arm.choice and arm.choice.candidates == 1]
    edge = [f"{arm.name} ({setting_label(arm.choice.setting)})" for arm in arms if arm.choice and arm.choice.at_edge]
    texts = [f"{listed(single)} had no other setting to choose"] if single else []
    if edge:
        where = "at the edge of what was tried: a wider grid may decide otherwise"
        texts.append(f"{listed(edge, verb=True)} best {where}")
    return [f"But {', and '.join(texts)}."] if texts else []
