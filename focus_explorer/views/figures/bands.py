"""A statistic as a line with its interval, and the same under baselines; dashes and marks differ besides colour."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.style import FOCUS, RANDOM, SHUFFLED, WINDOW, Preset
from focus_explorer.words import counted

# name of the columns -> name in the legend, colour, dash, mark; value and interval of Focus come last, on top
LINES = {
    "window_only": ("window only", WINDOW, "dashdot", "cross-thin-open"),
    "random": ("random centroids", RANDOM, "dash", "triangle-up-open"),
    "shuffled": ("shuffled groups", SHUFFLED, "dot", "square-open"),
    "value": ("Focus", FOCUS, "solid", "circle"),
}


def add_bands(
    figure: go.Figure, rows: list[dict[str, Any]], x: list[float], preset: Preset, *, legend: bool = True, **where: Any
) -> list[str]:
    """One line per series of `LINES` that the rows have, with its band where they have one.

    Args:
        rows: with `value`, `low`, `high` and the baselines, one for each x.
        where: `xaxis` and `yaxis` of a panel.

    Returns:
        Names of the lines drawn.
    """
    known = {key: look for key, look in LINES.items() if any(row.get(key) is not None for row in rows)}
    for key, (_, colour, _, _) in known.items():  # all bands first, so that none hides a line
        ends = ("low", "high") if key == "value" else (f"{key}_low", f"{key}_high")
        low, high = ([row.get(end) for row in rows] for end in ends)
        if all(value is not None for value in low + high):
            figure.add_scatter(
                x=[*x, *reversed(x)],
                y=[*high, *reversed(low)],
                fill="toself",
                mode="lines",
                line={"width": 0},
                fillcolor=_faded(colour),
                hoverinfo="skip",
                showlegend=False,
                **where,
            )
    for key, (name, colour, dash, symbol) in known.items():
        line = {"color": colour, "width": preset.scaled(1.2), "dash": dash}
        mark = {
            "symbol": symbol,
            "size": preset.scaled(3.2),
            "color": colour,
            "line": {"width": preset.scaled(0.8), "color": colour},
        }
        figure.add_scatter(
            x=x,
            y=[row.get(key) for row in rows],
            mode="lines+markers",
            name=name,
            line=line,
            marker=mark,
            legendgroup=name,
            showlegend=legend,
            **where,
        )
    return [name for name, _, _, _ in known.values()]


def interval_words(rows: list[dict[str, Any]]) -> str:
    """What the intervals of a statistic are over, for a caption; fewer than two units give none.

    Args:
        rows: with `low`, `units` and `unit`.
    """
    units = counted(rows[0]["units"], rows[0]["unit"])
    known = any(row["low"] is not None for row in rows)
    return f"with 95 % bootstrap intervals over {units}" if known else f"without intervals ({units})"


def _faded(colour: str) -> str:
    """A quarter of the colour on white; see-through fills are not understood by every printer."""
    mixed = (round(255 - 0.25 * (255 - int(colour[at : at + 2], 16))) for at in (1, 3, 5))
    return "#" + "".join(f"{value:02x}" for value in mixed)
