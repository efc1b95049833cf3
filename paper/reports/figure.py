"""A reproduced table -> a figure for a paper: vector, colours safe for colour-vision deficiency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from focus_explorer.errors import InputError

if TYPE_CHECKING:
    from paper.reports.report import Report, Series

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")


def _errors(series: Series) -> dict[str, Any] | None:
    if not series.low:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 1.2,
        "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
        "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
    }


def report_figure(report: Report) -> go.Figure:
    """Draw `report.figure`."""
    spec = report.figure
    assert spec is not None
    figure = go.Figure()
    for number, series in enumerate(spec.series):
        colour = COLOURS[number % len(COLOURS)]
        x, y = list(series.x), list(series.y)
        if spec.kind == "bar":
            figure.add_bar(x=x, y=y, name=series.name, marker_color=colour, error_y=_errors(series))
            continue
        mode = "lines" if len(x) > 40 else "lines+markers"
        line = {"color": colour, "width": 2, "dash": "dot" if series.dash else "solid"}
        figure.add_scatter(x=x, y=y, name=series.name, mode=mode, line=line, error_y=_errors(series))
    for number, (name, value) in enumerate(spec.marks.items()):
        figure.add_hline(
            y=value,
            line={"color": "#777777", "width": 1, "dash": "dash"},
            annotation_text=name,
            annotation_position="top left" if number % 2 else "top right",
        )
    figure.update_layout(
        template="plotly_white",
        width=760,
        height=480,
        font={"family": "Arial, sans-serif", "size": 14},
        title={"text": report.title, "font": {"size": 15}},
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


def draw(report: Report) -> bytes | None:
    """The figure as SVG; None where no browser can draw it."""
    from focus_explorer.exports.figures.render import picture

    try:
        return picture(report_figure(report), "svg")
    except InputError:  # the table says the same
        return None
