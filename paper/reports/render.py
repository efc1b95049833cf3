"""Reports as Markdown, CSV, LaTeX, JSON and SVG, written together and atomically."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from focus_explorer.exports.tables.latex import MACROS, escape_latex, short_table
from focus_explorer.exports.tables.reading import escape_pipes, line
from focus_runtime.files import cannot_write, replacing
from focus_runtime.measure.intervals import Interval
from paper.reports.report import Claim, Column, Report

HELD = {True: "held", False: "did not hold", None: "not decided here"}
PAPER = "paper: "
RECIPE_WORDS = {"paper": "the paper's recipe", "ours": "our recipe"}
LATEX_HEADER = "% needs \\usepackage{booktabs}; compile with LuaLaTeX or XeLaTeX where cells are not ASCII\n"


def cell(value: Any, column: Column) -> str:
    """A cell's text; a dash stands for what was not measured."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, Interval):
        if value.low is None:
            return cell(value.value, column)
        low, high = (cell(bound, column) for bound in (value.low, value.high))
        return f"{cell(value.value, column)} ({low} to {high})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        sign = "+" if column.signed else ""
        number = value * 100 if column.percent else value
        return f"{number:{sign},.{column.digits}f}" + (" %" if column.percent else "")
    return str(value)


def heading(column: Column) -> str:
    """The column's heading, marked where the numbers are the paper's."""
    return (PAPER if column.paper else "") + column.label


def claims_by_text(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Claims together with the same claim under other recipes."""
    together: dict[str, list[Claim]] = {}
    for claim in claims:
        together.setdefault(claim.text, []).append(claim)
    return together


def _claims(claims: Iterable[Claim]) -> list[str]:
    lines = []
    for text, found in claims_by_text(claims).items():
        lines.append(f"- {text}")
        for claim in found:
            where = f"{RECIPE_WORDS[claim.recipe]}: " if claim.recipe else ""
            rule = f"; {claim.rule}" if claim.rule else ""
            lines.append(f"  - {where}**{HELD[claim.held]}** ({claim.evidence}{rule})")
    return lines


def markdown(report: Report) -> str:
    """The whole report."""
    lines = [f"# {report.name}: {report.title}", ""]
    lines.append(line(heading(c) for c in report.columns))
    lines.append("|" + "---|" * len(report.columns))
    for row in report.rows:
        lines.append(line(escape_pipes(cell(row.get(c.key), c)) for c in report.columns))
    if report.claims:
        lines += ["", "## What the paper claims, and what was found", ""]
        lines += _claims(report.claims)
    if report.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in report.notes)]
    lines += ["", "## Setting", ""]
    lines += [f"- {name}: {plain(value)}" for name, value in report.setting.items()]
    return "\n".join(lines) + "\n"


def plain(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(v) for v in value)
    return str(value)


def comma_separated(report: Report) -> str:
    """One line a row; an interval gives three columns, full precision."""
    wide = {c.key for c in report.columns if any(isinstance(row.get(c.key), Interval) for row in report.rows)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names: list[str] = []
    for column in report.columns:
        name = ("paper_" if column.paper else "") + column.key.removeprefix("paper_")
        names += [name, f"{name}_low", f"{name}_high"] if column.key in wide else [name]
    writer.writerow(names)
    for row in report.rows:
        cells: list[Any] = []
        for column in report.columns:
            value = row.get(column.key)
            if isinstance(value, Interval):
                cells += [value.value, value.low, value.high]
            else:
                cells += [value, None, None] if column.key in wide else [value]
        writer.writerow(["" if value is None else value for value in cells])
    return out.getvalue()


def latex(report: Report) -> str:
    """A booktabs table whose caption states the setting."""
    alignment = "".join("l" if _is_text(report, c) else "r" for c in report.columns)
    rows = [" & ".join(_latex(cell(row.get(c.key), c)) for c in report.columns) + r" \\" for row in report.rows]
    head = " & ".join(_latex(heading(c)) for c in report.columns) + r" \\"
    caption = _latex(f"{report.title}. " + "; ".join(f"{k}: {plain(v)}" for k, v in report.setting.items()) + ".")
    lines = short_table(alignment, head, rows, rf"\caption{{{caption}}}", f"tab:focus-{report.name}")
    return LATEX_HEADER + MACROS + "\n".join(lines) + "\n"


def _is_text(report: Report, column: Column) -> bool:
    return any(isinstance(row.get(column.key), str) for row in report.rows)


def _latex(text: str) -> str:
    """Escaped text, with a thin space before per cent."""
    return escape_latex(text, mathematics=True).replace(r" \%", r"\,\%")


def write(report: Report, folder: Path, *, log: str = "") -> list[Path]:
    """Write every form; a figure only where Chrome or Chromium is there, which is noted otherwise.

    Args:
        report: to write.
        folder: made where it is missing.
        log: lines of the run, written as a file of their own unless empty.

    Raises:
        InputError: the folder cannot be written.
    """
    from paper.reports.figure import draw

    contents: dict[str, bytes] = {}
    if report.figure is not None:
        image = draw(report)
        if image is None:
            report.notes.append("no figure was drawn: that needs Chrome or Chromium")
        else:
            contents[".svg"] = image
    contents |= {
        ".md": markdown(report).encode(),
        ".csv": comma_separated(report).encode(),
        ".tex": latex(report).encode(),
        ".json": (json.dumps(_finite(report.to_dict()), ensure_ascii=False, indent=1) + "\n").encode(),
    }
    if log:
        contents[".log"] = log.encode()
    return [_write(folder / f"{report.name}{suffix}", data) for suffix, data in contents.items()]


def kept_key(folder: Path, name: str) -> str | None:
    """The key of a report that was written before; None without one."""
    try:
        key = json.loads((folder / f"{name}.json").read_text(encoding="utf-8")).get("key")
    except (OSError, ValueError, AttributeError):
        return None
    return key or None


def _finite(value: Any) -> Any:
    """The same in plain Python values, without nan and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(target: Path, data: bytes) -> Path:
    with replacing(target, explain=cannot_write("choose another --out with space in it")) as part:
        part.write_bytes(data)
    return target
