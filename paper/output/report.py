"""A reproduced table or figure: measured rows, the paper's numbers, the setting, and which claims held."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores

Row = dict[str, Any]
INTERVAL, SCORES = ({part.name for part in dataclasses.fields(kind)} for kind in (Interval, Scores))
EVERY = "every"  # recipe of a row that is the same under all
RECIPE_OF_ROW = {"paper": "paper's", "ours": "ours", EVERY: "does not matter"}


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
    """A claim of the paper, and what was found; see `paper.verdicts`.

    Attributes:
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


@dataclass(frozen=True, slots=True)
class Series:
    """One line or set of bars; `low` and `high` are 95 % intervals when given."""

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dash: bool = False

    @classmethod
    def of_intervals(cls, name: str, x: Sequence[Any], cells: Sequence[Interval]) -> Series:
        """Values with their ends; of one unit, which has none, the value itself."""
        low, high = (
            [c.value if getattr(c, end) is None else getattr(c, end) for c in cells] for end in ("low", "high")
        )
        return cls(name, x, [c.value for c in cells], low, high)


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
        columns, rows: cells are numbers, text, `Interval` or None (not measured).
        setting: everything the numbers depend on.
        notes: what a reader must know.
        claims: the paper's claims this table is about.
        figure: drawn from the same rows.
        raw: further values for the JSON file, per sequence and per step.
        key: of everything it was measured from, by which a later run finds it again.
        seconds: that measuring took, with what was found on disk not measured again.
        name, title: as `paper.names` has them.
    """

    columns: list[Column]
    rows: list[Row]
    setting: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    figure: Figure | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    seconds: float = 0.0
    name: str = ""
    title: str = ""


def plain_values(value: Any) -> Any:
    """The same of dictionaries, lists and plain numbers, for JSON, which has no nan and infinity: None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain_values(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_values(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(file: Path) -> Any:
    """What `plain_values` made, with intervals and scores; None where there is no file, or none that can be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_hook=_restored)
    except (OSError, ValueError):
        return None


def _restored(values: dict[str, Any]) -> Any:
    if values.keys() == INTERVAL:
        return Interval(**values)
    if values.keys() == SCORES:
        return Scores(**{name: np.array(column, dtype=float) for name, column in values.items()})
    return values


def merged(reports: dict[str, Report]) -> Report:
    """One report of the same report under several recipes: rows and claims side by side, the first recipe first.

    Where there is one, it is that report, whose claims then name the recipe too.
    """
    for recipe, report in reports.items():
        report.claims = [dataclasses.replace(claim, recipe=recipe) for claim in report.claims]
    first, *others = reports.values()
    if not others:
        return first
    columns = {column.key: column for report in reports.values() for column in report.columns[1:]}
    return dataclasses.replace(
        first,
        columns=[first.columns[0], Column("recipe", "recipe"), *columns.values()],
        rows=_merged_rows(reports),
        setting=_merged_settings({recipe: report.setting for recipe, report in reports.items()}),
        notes=list(dict.fromkeys(note for report in reports.values() for note in report.notes)),
        claims=[claim for report in reports.values() for claim in report.claims],
        figure=_merged_figure({r: one.figure for r, one in reports.items() if one.figure is not None}),
        raw={recipe: report.raw for recipe, report in reports.items()},
    )


def _merged_rows(reports: dict[str, Report]) -> list[Row]:
    first = next(iter(reports))
    rows: list[Row] = []
    for recipe, report in reports.items():
        for row in report.rows:
            if not all(row in one.rows for one in reports.values()):
                rows.append({**row, "recipe": RECIPE_OF_ROW[recipe]})
            elif recipe == first:
                rows.append({**row, "recipe": RECIPE_OF_ROW[EVERY]})
    return rows


def _merged_settings(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What all share as it is, what differs by recipe."""
    together: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in settings.values() for name in one):
        values = {recipe: one[name] for recipe, one in settings.items() if name in one}
        first = next(iter(values.values()))
        alike = len(values) == len(settings) and all(value == first for value in values.values())
        together[name] = first if alike else values
    return together


def _merged_figure(figures: dict[str, Figure]) -> Figure | None:
    """The curves of all recipes, each once; those of later recipes are dashed."""
    if not figures:
        return None
    series: list[Series] = []
    marks: dict[str, float] = {}
    for recipe, figure in figures.items():
        later = recipe != next(iter(figures))
        for one in figure.series:
            if not any((list(one.x), list(one.y)) == (list(other.x), list(other.y)) for other in series):
                name = f"{one.name}, {RECIPE_OF_ROW[recipe]}"
                series.append(dataclasses.replace(one, name=name, dash=one.dash or later))
        for name, value in figure.marks.items():
            if marks.get(name) != value:
                marks[name if name not in marks else f"{name}, {RECIPE_OF_ROW[recipe]}"] = value
    return dataclasses.replace(next(iter(figures.values())), series=series, marks=marks)
