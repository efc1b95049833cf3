"""When a claim counts as reproduced: the claims with their margins are data, in verdicts.toml; here they are judged."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from focus_runtime.measure.intervals import Interval
from paper.output.report import Claim

ANSWERS_LOST = 0.1  # share of items right; the few items of a small scale exclude no smaller loss
ALIKE_PAIRS = 0.05  # difference in the share of pairs kept up to which two methods count as keeping as many
FULL, ROUNDING = 0.999, 0.01  # pairs kept and difference of perplexity up to which a mask is full attention
EVEN = 1.5 / 8  # largest group of eight up to which groups count as balanced


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides a claim; verdicts.toml says what its fields mean."""

    text: str
    words: str = ""
    below: float | None = None
    above: float | None = None
    within: float | None = None
    refuted: float | None = None
    form: str = "+.2%"


RULES = {
    name: Rule(**fields)
    for name, fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


def judge(
    name: str,
    value: Interval | Sequence[Interval] | float | bool | None,
    evidence: str = "",
    *,
    items: int = 0,
    **named: Any,
) -> Claim:
    """The verdict on a claim of `RULES`.

    Args:
        value: what its margin is held against: an interval, several that all have to lie there, or a number without
            an interval; or the verdict itself, where the rule is in words.
        evidence: the numbers that decide it; an interval is said before it.
    """
    rule = RULES[name]
    if isinstance(value, Interval):
        held = decided(value, below=rule.below, above=rule.above)
        words = rule.words or _margin(rule, [value])
        if not rule.words:
            ends = "" if value.low is None else f" ({value.low:{rule.form}} to {value.high:{rule.form}})"
            evidence = f"{value.value:{rule.form}}{ends}; {evidence}".removesuffix("; ")
    elif isinstance(value, Sequence):
        held = agreed(_lies_within(one, rule) for one in value)
        words = rule.words or _margin(rule, value)
    elif value is None:
        held, words = None, rule.words or _margin(rule, [])
    elif isinstance(value, bool | np.bool_):
        held, words = bool(value), rule.words
    else:
        held, words = _beyond_threshold(value, rule), rule.words
    named["answers"] = answers_rule(items) if items else ""
    return Claim(rule.text.format(**named), held, evidence, words.format(**named))


def _lies_within(interval: Interval, rule: Rule) -> bool | None:
    if rule.within is None:
        return decided(interval, below=rule.below, above=rule.above)
    if interval.low is None or interval.high is None:
        return None
    if interval.low > rule.within or interval.high < -rule.within:
        return False
    return True if -rule.within <= interval.low and interval.high <= rule.within else None


def _beyond_threshold(value: float, rule: Rule) -> bool | None:
    if rule.above is None:
        assert rule.below is not None
        return bool(value <= rule.below)
    if value >= rule.above:
        return True
    return False if rule.refuted is None or value < rule.refuted else None


def _margin(rule: Rule, intervals: Sequence[Interval]) -> str:
    """The margin and half the intervals' widths, the smallest distances from it that could be told."""
    halves = [(one.high - one.low) / 2 for one in intervals if one.low is not None and one.high is not None]
    if rule.within is not None:
        effects = f"; smallest effects these data can show: {min(halves):.2%} to {max(halves):.2%}" if halves else ""
        return f"margin: within {rule.within:.1%} to either side{effects}"
    side, limit = ("above", rule.above) if rule.below is None else ("below", rule.below)
    effect = f"; smallest effect these data can show: {halves[0]:{rule.form.lstrip('+')}}" if halves else ""
    if intervals and not halves:
        effect = "; one unit, so no interval"
    return f"margin: {side} {limit:{rule.form}}{effect}"


def decided(interval: Interval, *, below: float | None = None, above: float | None = None) -> bool | None:
    """Whether a value lies on the claimed side of a limit; None where its interval holds the limit or there is none."""
    limit = below if below is not None else above
    low, high = interval.low, interval.high
    assert limit is not None
    if low is None or high is None or low <= limit <= high:
        return None
    return high < limit if below is not None else low > limit


def lies_below(one: Interval, other: Interval) -> bool | None:
    """Whether one lies below the other; None where their intervals overlap."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    if one.high < other.low:
        return True
    return False if other.high < one.low else None


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """False where one verdict is False, else None where one is undecided, else True."""
    every = list(verdicts)
    return False if False in every else None if None in every else True


def unharmed(test: dict[str, Any], items: int) -> bool | None:
    """Whether answers stayed as they were: no where a paired test finds a loss, yes where a large one is excluded.

    Args:
        test: `difference` and `p_value` of one metric, as from `focus_runtime.evaluate.lm_eval.run.compare_tasks`.
        items: compared. Where few differ or none, 3 / items bounds the share that may (the rule of three).

    Returns:
        None where the items are too few to decide.
    """
    difference = test["difference"]
    if test["p_value"] < 0.05:
        return bool(difference["value"] > 0)
    low = difference["low"]
    return True if low is not None and min(low, -3 / items) > -ANSWERS_LOST else None


def answers_rule(items: int) -> str:
    """The rule of `unharmed`, with the smallest loss that so many items can exclude."""
    least = 3 / items
    words = f"margin: no loss of {ANSWERS_LOST:.0%} of items, by a paired interval; {items} items can exclude one of "
    words += f"{least:.1%}"
    return words if least < ANSWERS_LOST else f"{words}, too few to say that there is none"
