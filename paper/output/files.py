"""A report as Markdown, CSV, LaTeX, JSON and SVG, each file written atomically."""

import csv
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from focus_explorer.errors import InputError
from focus_explorer.exports.figures.render import picture
from focus_explorer.exports.tables.latex import MACROS, escape_latex, short_table
from focus_explorer.exports.tables.reading import escape_pipes, line
from focus_runtime.files import cannot_write, replacing
from focus_runtime.measure.intervals import Interval
from paper.output.report import Claim, Column, Figure, Report, Series, plain_values

HELD = {True: "held", False: "did not hold", None: "not decided here"}
RECIPE_WORDS = {"paper": "the paper's recipe", "ours": "our recipe"}
LATEX_HEADER = "% needs \\usepackage{booktabs}; compile with LuaLaTeX or XeLaTeX where cells are not ASCII\n"
NO_SPACE = cannot_write("choose another --out with space in it")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")


def write(report: Report, folder: Path, *, log: str = "") -> list[Path]:
    """Write every form; a figure only where Chrome or Chromium is there, which is noted otherwise.

    The lines of the run are a file of their own unless empty.
    """
    contents: dict[str, bytes] = {}
    if report.figure is not None:
        try:
            contents[".svg"] = draw(report.figure, report.title)
        except InputError:  # the table says the same
            report.notes.append("no figure was drawn: that needs Chrome or Chromium")
    contents |= {
        ".md": markdown(report).encode(),
        ".csv": comma_separated(report).encode(),
        ".tex": latex(report).encode(),
        ".json": (json.dumps(plain_values(report), ensure_ascii=False, indent=1) + "\n").encode(),
    }
    if log:
        contents[".log"] = log.encode()
    paths = [folder / f"{report.name}{suffix}" for suffix in contents]
    for path, data in zip(paths, contents.values(), strict=True):
        with replacing(path, explain=NO_SPACE) as part:
            part.write_bytes(data)
    return paths


# --- cells and settings in words


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
        number = value * 100 if column.percent else value
        return f"{number:{'+' if column.signed else ''},.{column.digits}f}" + (" %" if column.percent else "")
    return str(value)


def heading(column: Column) -> str:
    """The column's heading, marked where the numbers are the paper's."""
    return ("paper: " if column.paper else "") + column.label


def plain(value: Any) -> str:
    """A setting in words."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(v) for v in value)
    return str(value)


def claims_by_text(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Claims together with the same claim under other recipes."""
    together: dict[str, list[Claim]] = {}
    for claim in claims:
        together.setdefault(claim.text, []).append(claim)
    return together


# --- forms


def markdown(report: Report) -> str:
    """The whole report."""
    lines = [f"# {report.name}: {report.title}", ""]
    lines.append(line(heading(c) for c in report.columns))
    lines.append("|" + "---|" * len(report.columns))
    for row in report.rows:
        lines.append(line(escape_pipes(cell(row.get(c.key), c)) for c in report.columns))
    if report.claims:
        lines += ["", "## What the paper claims, and what was found", ""]
    for text, found in claims_by_text(report.claims).items():
        lines.append(f"- {text}")
        for claim in found:
            where = f"{RECIPE_WORDS[claim.recipe]}: " if claim.recipe else ""
            rule = f"; {claim.rule}" if claim.rule else ""
            lines.append(f"  - {where}**{HELD[claim.held]}** ({claim.evidence}{rule})")
    if report.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in report.notes)]
    lines += ["", "## Setting", ""]
    lines += [f"- {name}: {plain(value)}" for name, value in report.setting.items()]
    return "\n".join(lines) + "\n"


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
    text = {c.key for c in report.columns if any(isinstance(row.get(c.key), str) for row in report.rows)}
    alignment = "".join("l" if c.key in text else "r" for c in report.columns)
    rows = [" & ".join(_latex(cell(row.get(c.key), c)) for c in report.columns) + r" \\" for row in report.rows]
    head = " & ".join(_latex(heading(c)) for c in report.columns) + r" \\"
    caption = _latex(f"{report.title}. " + "; ".join(f"{k}: {plain(v)}" for k, v in report.setting.items()) + ".")
    lines = short_table(alignment, head, rows, rf"\caption{{{caption}}}", f"tab:focus-{report.name}")
    return LATEX_HEADER + MACROS + "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Escaped text, with a thin space before per cent."""
    return escape_latex(text, mathematics=True).replace(r" \%", r"\,\%")


def draw(spec: Figure, title: str) -> bytes:
    """The figure as SVG; InputError where there is no browser to draw it."""
    return picture(plotly_figure(spec, title), "svg")


def plotly_figure(spec: Figure, title: str) -> go.Figure:
    """A figure for a paper, in colours that are safe for colour-vision deficiency."""
    figure = go.Figure()
    for number, series in enumerate(spec.series):
        colour = COLOURS[number % len(COLOURS)]
        x, y = list(series.x), list(series.y)
        if spec.kind == "bar":
            figure.add_bar(x=x, y=y, name=series.name, marker_color=colour, error_y=_errors(series))
            continue
        mode = "lines" if len(x) > 40 else "lines+markers"
        stroke = {"color": colour, "width": 2, "dash": "dot" if series.dash else "solid"}
        figure.add_scatter(x=x, y=y, name=series.name, mode=mode, line=stroke, error_y=_errors(series))
    for number, (name, value) in enumerate(spec.marks.items()):
        place = "top left" if number % 2 else "top right"
        grey = {"color": "#777777", "width": 1, "dash": "dash"}
        figure.add_hline(y=value, line=grey, annotation_text=name, annotation_position=place)
    figure.update_layout(
        template="plotly_white",
        width=760,
        height=480,
        font={"family": "Arial, sans-serif", "size": 14},
        title={"text": title, "font": {"size": 15}},
        barmode="group",
        showlegend=len(spec.series) > 1,
        xaxis={"title": spec.x_label, "type": "log" if spec.log_x else None, "automargin": True},
        yaxis={"title": spec.y_label, "type": "log" if spec.log_y else None},
        legend={"orientation": "h", "y": -0.22},
        margin={"l": 70, "r": 20, "t": 60, "b": 80},
    )
    if spec.log_x:
        ticks = sorted({value for series in spec.series for value in series.x})
        figure.update_xaxes(tickvals=ticks, tickformat=",d")
    return figure


def _errors(series: Series) -> dict[str, Any] | None:
    if not series.low:
        return None
    above = [high - y for high, y in zip(series.high, series.y, strict=True)]
    below = [y - low for low, y in zip(series.low, series.y, strict=True)]
    return {"type": "data", "symmetric": False, "thickness": 1.2, "array": above, "arrayminus": below}
