"""When a claim counts as reproduced: every claim with its margin, once, as data, and the one function that judges.

A claim with a margin is decided by the 95 % interval of its value: it held where the whole interval lies on the claimed
side, did not where the whole interval lies on the other, and is not decided otherwise. Claims about one training have a
threshold without an interval, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.measure.intervals import Interval
from paper.output.report import Claim

ANSWERS_LOST = 0.1  # share of items right; the few items of a small scale exclude no smaller loss
ALIKE_PAIRS = 0.05  # difference in the share of pairs kept up to which two methods count as keeping as many
FULL, ROUNDING = 0.999, 0.01  # pairs kept and difference of perplexity up to which a mask is full attention
APART = "margin: both intervals against full attention lie apart; where they overlap it is not decided"
BY_COUNTING = "by counting: of four groups any two sets of three share one, so "


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides a claim; `text` and `words` may hold names in braces, which `judge` fills in.

    Attributes:
        text: the claim, with the paper's numbers.
        below, above: the margin, on the side of which the value has to lie.
        within: the margin to either side, for differences.
        refuted: for a threshold without an interval: on this side of it the claim did not hold, between it is open.
        form: format of the value.
        words: the rule in words, where it does not follow from the margin.
    """

    text: str
    words: str = ""
    below: float | None = None
    above: float | None = None
    within: float | None = None
    refuted: float | None = None
    form: str = "+.2%"


EVEN = 1.5 / 8  # largest group of eight up to which groups count as balanced
COLLAPSES = f"margin: above 90%; below {EVEN:.1%} (1.5 / K) it did not; one seed"
HOLDS = f"margin: at most {EVEN:.1%} (1.5 / K) on average; one seed"
RULES: dict[str, Rule] = {
    "table1 gain": Rule(
        "trained centroids lower the perplexity of the frozen model's domain (36.2 against 42.8, -15 %)", below=0.0
    ),
    "table1 rivals": Rule(
        "Focus beats other sparse attentions on the frozen model ({focus})",
        f"{APART}; of those that keep as many pairs within {ALIKE_PAIRS:.0%}",
    ),
    "table1 fine-tuning": Rule(
        "Focus beats full fine-tuning in the domain (36.2 against 36.4)",
        f"{APART}; decided only where both trained for as many steps",
    ),
    "table1 answers": Rule("zero degradation on benchmarks", "{answers}"),
    "table2": Rule(
        "centroids compose onto every attention kind and cost little perplexity (Mistral 7B 10.8 to 11.6, +7 %)",
        "margin: below +8 % on every kind, by the interval of the worst",
        below=0.08,
    ),
    "table3 gain": Rule("LoRA lowers perplexity more than centroids do (31.6 against 34.2)", APART),
    "table3 answers": Rule("LoRA costs accuracy elsewhere, centroids none", "{answers}"),
    "table4 centroids": Rule("centroids leave answers as they were (39.7 to 40.0)", "{answers}"),
    "table4 LoRA": Rule(
        "LoRA loses answers at nearly every rate (down to 28.5)",
        "margin: a loss (p < 0.05) at all rates but one; {answers}",
    ),
    "twins": Rule(
        "{training}: as good as with full attention (30.3 against 31.4; 13.82 against 13.89)",
        "margin: below +1 % by every seed's interval, with twins at most at 0.8 times the perplexity of token "
        "frequencies",
        below=0.01,
    ),
    "domains": Rule(
        "Focus is as good as full attention on every kind of text (WikiText-103 21.3 against 21.4, OpenWebText 21.7 "
        "against 22.2)",
        "margin: below +1% on every kind, by the intervals, at least two kinds",
        below=0.01,
    ),
    "table6 long": Rule(
        "with K = 8 and k = 1 the decomposition is several times as fast as full attention on long texts (3.1 at 32K "
        "tokens, 8.6 at 1M on an H100)",
        above=2.0,
        form=".2f",
    ),
    "table6 short": Rule("it is slower than full attention on short texts (0.2 at 1K)", below=1.0, form=".2f"),
    "table7 gain": Rule("K = 4, k = 2 beats the pretrained model (41.3 against 42.8)", below=0.0),
    "table7 speed": Rule("K = 4, k = 2 is twice as fast", above=2.0, form=".2f"),
    "table7 k = 1": Rule("k = 1 ruins quality (82.9 against 42.8, +94 %)", above=0.2),
    "table7 k = 3": Rule(
        "k = 3 of 4 recovers the pretrained model (the paper has 47.2 for it)", BY_COUNTING + "no pair is left out"
    ),
    "long-context k = 2": Rule(
        "K = 4, k = 2 adds at most half a point of perplexity from 1,024 to 8,192 tokens",
        "margin: below +0.50 at every length; smallest effect these data can show: the intervals' halves",
        below=0.5,
    ),
    "long-context k = 3": Rule(
        "k = 3 of 4 adds nothing",
        f"{BY_COUNTING}this is full attention at any length; margin: more than {FULL:.1%} of pairs kept, and no "
        f"interval wholly beyond {ROUNDING:.0%} to either side",
    ),
    "table8 softmax": Rule(
        "softmax assignment collapses into one group (99.4 % at the end)", COLLAPSES, above=0.9, refuted=EVEN
    ),
    "table8 Sinkhorn": Rule("Sinkhorn holds (14.6 % with K = 8)", HOLDS, below=EVEN),
    "table8 others": Rule(
        "no other mitigation is stable",
        f"margin: every other one above {EVEN:.1%} (1.5 / K) or with an empty group; one seed",
    ),
    "dominance softmax": Rule(
        "with all weights trained, softmax and a balance loss end in one group (99.4 %)",
        COLLAPSES,
        above=0.9,
        refuted=EVEN,
    ),
    "dominance Sinkhorn": Rule("with all weights trained, Sinkhorn holds (15.9 %)", HOLDS, below=EVEN),
    "table9 settings": Rule(
        "the settings matter little (fine-tuned perplexity 29.9 to 30.5, 2 %)", within=30.5 / 29.9 - 1
    ),
    "table9 N = 3": Rule(
        "three Sinkhorn iterations hide a collapse (95 % dominance)",
        "margin: more than half of the tokens in one group",
        above=0.5,
    ),
    "table9 sinks": Rule("(ours) without sinks k = 1 loses more than a tenth", above=0.1),
    "routing-size same": Rule("quality is the same for d_g = 16 to 128 (34.5)", within=0.01),
    "routing-size worse": Rule("it is worse at d_g = 768 (34.8 against 34.5, +0.9 %)", above=0.0),
    "table10 rivals": Rule(
        "Focus under the soft gate is ahead of SparQ and MagicPIG (36.2 against 48.3 to 52.8)", APART
    ),
    "table10 mean value": Rule("reallocating the mean value helps SparQ (48.3 against 52.8)", APART),
    "figure1": Rule("no other method is both faster and better than Focus", "margin: by medians and means; one seed"),
    "figure2": Rule("LoRA forgets at every rank, centroids at neither size", "{answers}"),
    "gsm8k": Rule("Focus keeps answers that need several steps (40.6 to 39.3 % on GSM8K)", "{answers}"),
    "groups classes": Rule(
        "groups follow linguistic categories, without supervision",
        "margin: above the 97.5th percentile of shuffled groups in every layer",
    ),
    "groups trained": Rule("it is the trained centroids that find them", above=0.0, form="+.3f"),
    "groups punctuation": Rule(
        "a punctuation group is 96% pure", "margin: one group of any layer with at least 96%", above=0.96
    ),
    "groups confidence": Rule("confidence is 0.89", "margin: within 0.05"),
    "groups sizes": Rule("groups hold 10% to 16% of tokens each", "margin: every group of every layer"),
    "pairs": Rule("{kind} words far apart share groups ({example})", above=0.0, form="+.1%"),
    "mass": Rule(
        "(a reader's question) the pairs that are dropped carried little attention",
        "margin: more than 90 % of the probability, by means; one seed",
        above=0.9,
    ),
    "leak": Rule(
        "(a reader's question) looking at later tokens flatters Sinkhorn's perplexity by more than 0.5 %", below=-0.005
    ),
    "sinks": Rule(
        "(ours) four sinks remove most of what the mask costs at k = 1",
        "margin: less than half of the loss without sinks, by means; one seed",
    ),
    "layers": Rule(
        "(ours) the choice of layers matters",
        "margin: the best half loses less than half of what the worst half does, by means",
    ),
    "balance": Rule(
        "groups stay balanced on held-out text: at most 1.5/K in every layer, potentials balanced after training",
        "margin: 1.5 / K in every layer",
    ),
    "devices Sinkhorn": Rule(
        "Sinkhorn alone keeps hard groups balanced in training",
        f"margin: the worst layer at most {EVEN:.1%} (1.5 / K) on held-out text; one seed",
        below=EVEN,
    ),
    "devices others": Rule(
        "(ours) another device trains better groups than Sinkhorn with N = 20 at equal pairs kept",
        "margin: half a per cent less perplexity at pairs within one point; one seed, without an interval",
    ),
    "gate gain": Rule(
        "the soft gate of trained centroids lowers the frozen model's perplexity (36.2 against 42.8, -15 %)", below=0.0
    ),
    "gate flatter": Rule("(ours) factors of far pairs lower it without any groups", below=0.0),
    "gate groups": Rule("(ours) groups add to what such factors gain", below=0.0),
    "gate log": Rule("(ours) equation 2 is ahead of the log gate while both are soft", below=0.0),
    "gate window": Rule("(ours) a temperature mends part of what a window alone loses", below=0.0),
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
        name: of the claim.
        value: what its margin is held against: an interval, several that all have to lie there, or a number without
            an interval; or the verdict itself, where the rule is in words.
        evidence: the numbers that decide it; an interval is said before it.
        items: answers compared, for a rule about answers.
        named: what stands in braces in the claim.
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
    elif value is None or (rule.below is None and rule.above is None) or isinstance(value, bool):
        held, words = None if value is None else bool(value), rule.words
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
    effect = f"smallest effect these data can show: {halves[0]:{rule.form.lstrip('+')}}" if halves else ""
    return f"margin: {side} {limit:{rule.form}}; {effect or 'one unit, so no interval'}"


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
