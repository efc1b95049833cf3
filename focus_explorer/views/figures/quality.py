"""Quality against pairs kept over the settings a run was compared at."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.style import FOCUS, INK, RANDOM, WINDOW, Preset, axis, finish, spread
from focus_explorer.words import counted

KINDS = {
    "focus": ("Focus", FOCUS, "circle"),
    "window": ("window only", WINDOW, "square-open"),
    "random": ("random centroids", RANDOM, "triangle-up-open"),
}
ENDS = ("mean", "low", "high")


def quality_figure(rows: list[dict[str, Any]], note: str, preset: Preset) -> go.Figure:
    """Loss difference with its interval, where there is one, over the share of pairs kept.

    Args:
        rows: of the query `comparisons`.
        note: end of the caption: what all settings share.
    """
    figure, known = go.Figure(), all(row["delta_low"] is not None for row in rows)
    for kind, (name, colour, symbol) in KINDS.items():
        of_kind = sorted((row for row in rows if row["kind"] == kind), key=lambda row: row["retained_pairs"])
        if not of_kind:
            continue
        figure.add_scatter(
            x=[row["retained_pairs"] for row in of_kind],
            y=[row["delta_mean"] for row in of_kind],
            mode="markers",
            name=name,
            text=[_setting(row) for row in of_kind],
            hovertemplate="%{text}<br>%{x:.1%} of pairs, %{y:+.4f} nats<extra></extra>",
            marker={
                "color": colour,
                "symbol": symbol,
                "size": preset.scaled(5),
                "line": {"color": colour, "width": preset.scaled(1)},
            },
            error_y=spread(preset, colour, *([row[f"delta_{end}"] for row in of_kind] for end in ENDS))
            if known
            else None,
        )
    figure.add_hline(y=0, line={"color": INK, "width": preset.scaled(0.6), "dash": "dash"})
    scored = max(row["scored"] for row in rows)
    intervals = (
        f"with 95 % moving-block bootstrap intervals over {counted(scored, 'token')}" if known else "without intervals"
    )
    caption = (
        "Loss with Focus minus loss with full attention over the share of causal pairs kept (mean over layers), one "
        f"point per setting, {intervals}. Settings: "
        + "; ".join(sorted({_setting(row) for row in rows}))
        + "."
        + (f" {note}" if note else "")
    )
    return finish(
        figure,
        preset,
        title="Quality against pairs kept",
        caption=caption,
        corner=f"n = {counted(scored, 'scored token')}, {counted(len(rows), 'setting')}",
        xaxis=axis(preset, "Pairs kept (share of causal pairs)", tickformat=".0%"),
        yaxis=axis(preset, "Focus − full (nats per token)"),
    )


def _setting(row: dict[str, Any]) -> str:
    groups = f", top {row['top_k']}" if row["kind"] != "window" else ""
    return f"{KINDS.get(row['kind'], (row['kind'],))[0]}{groups}, window {row['window_size']}"
