"""One report from the same report under several recipes: rows and claims side by side, the paper's recipe first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from paper.reports.report import Column, Figure, Report

EVERY = "every"  # recipe of a row that is the same under all
WORDS = {"paper": "paper's", "ours": "ours", EVERY: "does not matter"}


def merged(reports: dict[str, Report]) -> Report:
    """One report of several.

    Args:
        reports: recipe -> the report under it, the one that comes first in the table first; changed.

    Returns:
        The report itself where there is one; its claims then name the recipe too.
    """
    for recipe, report in reports.items():
        report.claims = [dataclasses.replace(claim, recipe=recipe) for claim in report.claims]
    first, *others = reports.values()
    if not others:
        return first
    return dataclasses.replace(
        first,
        columns=[first.columns[0], Column("recipe", "recipe"), *_columns(reports.values())],
        rows=_rows(reports),
        setting=_settings({recipe: report.setting for recipe, report in reports.items()}),
        notes=list(dict.fromkeys(note for report in reports.values() for note in report.notes)),
        claims=[claim for report in reports.values() for claim in report.claims],
        figure=_figure(reports),
        raw={recipe: report.raw for recipe, report in reports.items()},
    )


def _columns(reports: Any) -> list[Column]:
    """Columns of all reports but the first, each once."""
    columns = {column.key: column for report in reports for column in report.columns}
    return list(columns.values())[1:]


def _rows(reports: dict[str, Report]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    shared = [row for row in next(iter(reports.values())).rows if all(row in one.rows for one in reports.values())]
    for recipe, report in reports.items():
        for row in report.rows:
            if row not in shared:
                rows.append({**row, "recipe": WORDS[recipe]})
            elif report is next(iter(reports.values())):
                rows.append({**row, "recipe": WORDS[EVERY]})
    return rows


def _settings(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What all share as it is, what differs by recipe."""
    names = list(dict.fromkeys(name for one in settings.values() for name in one))
    merged_settings: dict[str, Any] = {}
    for name in names:
        values = {recipe: one[name] for recipe, one in settings.items() if name in one}
        alike = len(values) == len(settings) and all(value == next(iter(values.values())) for value in values.values())
        merged_settings[name] = next(iter(values.values())) if alike else values
    return merged_settings


def _figure(reports: dict[str, Report]) -> Figure | None:
    figures: dict[str, Figure] = {recipe: one.figure for recipe, one in reports.items() if one.figure is not None}
    if not figures:
        return None
    first: Figure = next(iter(figures.values()))
    series = [
        dataclasses.replace(one, name=f"{one.name}, {WORDS[recipe]}", dash=one.dash or recipe != next(iter(figures)))
        for recipe, figure in figures.items()
        for one in figure.series
    ]
    return dataclasses.replace(first, series=_without_copies(series), marks=_marks(figures))


def _without_copies(series: Sequence[Any]) -> list[Any]:
    """Series that are not the same curve as an earlier one."""
    kept: list[Any] = []
    for one in series:
        if not any(list(one.x) == list(other.x) and list(one.y) == list(other.y) for other in kept):
            kept.append(one)
    return kept


def _marks(figures: dict[str, Figure]) -> dict[str, float]:
    marks: dict[str, float] = {}
    for recipe, figure in figures.items():
        for name, value in figure.marks.items():
            if marks.get(name) == value:
                continue
            marks[name if name not in marks else f"{name}, {WORDS[recipe]}"] = value
    return marks
