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
    """A claim of the paper, whether it held here (None: not decided by this run), and the numbers that decide it."""

    text: str
    held: bool | None
    evidence: str


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
        test: `difference` and `p_value` of one metric, as from `focus_runtime.tasks.lm_eval.run.compare_tasks`.
        items: compared. Where few differ or none, 3 / items bounds the share that may (the rule of three).

    Returns:
        None where the items are too few to decide.
    """
    difference = test["difference"]
    if test["p_value"] < 0.05:
        return bool(difference["value"] > 0)
    low = difference["low"]
    return True if low is not None and min(low, -3 / items) > -margin else None


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

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: value for name, value in asdict(self).items() if name != "log"}
