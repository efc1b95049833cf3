"""A reproduced table: measured rows, the paper's numbers, the setting, and which claims held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from focus_runtime.measure.intervals import Interval

MARGIN = 0.1  # share of items right; the few items of a small scale exclude no smaller loss


@dataclass(frozen=True, slots=True)
class Column:
    """One column: key in the rows, heading, digits; `paper`: the paper's number; `signed`: with + or -."""

    key: str
    label: str
    digits: int = 2
    paper: bool = False
    percent: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, and what was found.

    Attributes:
        text: the claim, with the paper's numbers.
        held: None where this run does not decide it.
        evidence: the numbers that decide it.
        rule: what decides: the claim's own margin, and the smallest effect that so much data could have shown.
        recipe: under which recipe it was measured, where a report has several.
    """

    text: str
    held: bool | None
    evidence: str
    rule: str = ""
    recipe: str = ""


def judged(
    text: str,
    interval: Interval,
    *,
    below: float | None = None,
    above: float | None = None,
    evidence: str = "",
    form: str = "+.2%",
) -> Claim:
    """A claim that a value lies on one side of a margin, decided by the value's interval.

    It held where the whole interval lies on the claimed side, did not where the whole interval lies on the other, and
    is not decided otherwise. Half the interval's width is the smallest distance from the margin that could be told.

    Args:
        text: the claim.
        interval: of the value.
        below, above: the margin; one of them.
        evidence: said after the value.
        form: format of the numbers.
    """
    limit = below if below is not None else above
    assert limit is not None
    value = f"{interval.value:{form}}"
    rule = f"margin: {'below' if below is not None else 'above'} {limit:{form}}"
    if interval.low is not None and interval.high is not None:
        value += f" ({interval.low:{form}} to {interval.high:{form}})"
        rule += f"; smallest effect these data can show: {(interval.high - interval.low) / 2:{form.lstrip('+')}}"
    else:
        rule += "; one unit, so no interval"
    words = f"{value}; {evidence}" if evidence else value
    return Claim(text, decided(interval, below=below, above=above), words, rule)


def alike(text: str, intervals: Sequence[Interval], *, margin: float, evidence: str) -> Claim:
    """A claim that several relative differences are small: none is larger than a margin to either side.

    It held where every interval lies within the margin, did not where one lies wholly outside.
    """
    verdicts: list[bool | None] = []
    for one in intervals:
        if one.low is None or one.high is None:
            verdicts.append(None)
        elif one.low > margin or one.high < -margin:
            verdicts.append(False)
        else:
            verdicts.append(True if -margin <= one.low and one.high <= margin else None)
    widths = [(one.high - one.low) / 2 for one in intervals if one.low is not None and one.high is not None]
    rule = f"margin: within {margin:.1%} to either side"
    rule += f"; smallest effects these data can show: {min(widths):.2%} to {max(widths):.2%}" if widths else ""
    return Claim(text, agreed(verdicts), evidence, rule)


def decided(interval: Interval, *, below: float | None = None, above: float | None = None) -> bool | None:
    """Whether a value lies below or above a limit; None where its interval holds the limit or there is none.

    Args:
        interval: of the value.
        below: limit that it should lie below.
        above: limit that it should lie above; used when `below` is None.
    """
    limit = below if below is not None else above
    assert limit is not None
    low, high = interval.low, interval.high
    if low is None or high is None or low <= limit <= high:
        return None
    return high < limit if below is not None else low > limit


def unharmed(test: dict[str, Any], items: int, *, margin: float = MARGIN) -> bool | None:
    """Whether answers stayed as they were: no where a paired test finds a loss, yes where one of `margin` is excluded.

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
    return True if low is not None and min(low, -3 / items) > -margin else None


def answers_rule(items: int) -> str:
    """The rule of `unharmed`, with the smallest loss that so many items can exclude."""
    least = 3 / max(items, 1)
    words = (
        f"margin: no loss of {MARGIN:.0%} of items, by a paired interval; {items} items can exclude one of {least:.1%}"
    )
    return words if least < MARGIN else f"{words}, too few to say that there is none"


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """False where one verdict is False, else None where one is undecided, else True."""
    all_verdicts = list(verdicts)
    return False if False in all_verdicts else None if None in all_verdicts else True


@dataclass(frozen=True, slots=True)
class Series:
    """One line or set of bars; `low` and `high` are 95 % intervals when given."""

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """What is drawn: kind is "line" or "bar"; `marks` are horizontal lines with a name."""

    kind: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    marks: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """One table or figure.

    Attributes:
        name: as on the command line.
        title: what it shows.
        columns, rows: cells are numbers, text, `Interval` or None (not measured).
        setting: everything the numbers depend on.
        notes: what a reader must know.
        claims: the paper's claims this table is about.
        figure: drawn from the same rows.
        raw: further values for the JSON file, per sequence and per step.
        log: lines logged while it was measured, where a table and a figure share it.
        key: of everything it was measured from, by which a later run finds it again.
        seconds: that measuring took, with what was found on disk not measured again.
    """

    name: str
    title: str
    columns: list[Column]
    rows: list[dict[str, Any]]
    setting: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    figure: Figure | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    key: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: value for name, value in asdict(self).items() if name != "log"}
