"""Time of every stage under full attention and Focus: medians with the range over repeats."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.style import FOCUS, FULL, Preset, axis, finish, spread
from focus_explorer.words import counted

STAGES = {
    "end_to_end": "forward pass",
    "attention": "attention",
    "routing": "· routing",
    "sort": "· sort",
    "same_group": "· same group",
    "local": "· window",
    "sinks": "· sinks",
    "merge": "· merge",
}
MODES = (("full", "full attention", FULL, "circle", -0.16), ("focus", "Focus", FOCUS, "square-open", 0.16))


def timings_figure(rows: list[dict[str, Any]], run: dict[str, Any], preset: Preset) -> go.Figure:
    """One line per stage; the time axis is logarithmic.

    Args:
        rows: of the query `timings`.
    """
    shown = [name for name in STAGES if any(row["stage"] == name and row["median"] > 0 for row in rows)]
    figure = go.Figure()
    for mode, name, colour, symbol, shift in MODES:
        of_mode = [row for row in rows if row["mode"] == mode and row["stage"] in shown and row["median"] > 0]
        figure.add_scatter(
            x=[row["median"] for row in of_mode],
            y=[shown.index(row["stage"]) + shift for row in of_mode],
            mode="markers",
            name=name,
            marker={
                "color": colour,
                "symbol": symbol,
                "size": preset.scaled(4.5),
                "line": {"color": colour, "width": preset.scaled(1)},
            },
            error_x=spread(preset, colour, *([row[key] for row in of_mode] for key in ("median", "low", "high"))),
        )
    repeats = sorted({row["repeats"] for row in rows})
    repeated = counted(repeats[0], "repeat") if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]} repeats"
    caption = (
        f"Wall time by stage on {counted(run['num_tokens'], 'token')} ({run['device']}, {run['dtype']}, backend "
        f"{run['backend']}): median and range of {repeated} after a warm-up, full attention and Focus "
        "in turn. Stages with a dot are parts of Focus attention."
    )
    return finish(
        figure,
        preset,
        title="Time by stage",
        caption=caption,
        corner=f"n = {repeated}, {counted(run['num_tokens'], 'token')}",
        xaxis=axis(
            preset,
            "Time (ms, logarithmic)",
            type="log",
            dtick=1,
            tickformat=",~r",
            showgrid=True,
            gridcolor="#e6e6e6",
            gridwidth=0.5,
        ),
        yaxis=axis(
            preset,
            "",
            tickvals=list(range(len(shown))),
            ticktext=[STAGES[name] for name in shown],
            range=[len(shown) - 0.5, -0.5],
        ),
    )
