"""Share of pairs that the mask keeps, by distance, with baselines."""

from __future__ import annotations

from math import log10, sqrt
from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.bands import add_bands
from focus_explorer.views.figures.style import INK, Preset, axis, finish


def distances_figure(
    rows: list[dict[str, Any]],
    window: int,
    tokens: int,
    layer: int | None,
    preset: Preset,
    *,
    grows: bool = False,
    full: bool = False,
) -> go.Figure:
    """One line for Focus and each baseline over the distance.

    Args:
        rows: of the table `distances`, of one layer or of the mean over layers.
        window: w of heads without an exception.
        layer: None for the mean.
        grows: whether windows grow with the position.
        full: whether some heads attend fully.
    """
    kept = sorted((row | {"value": row["share"]} for row in rows if row["first"] > 0), key=lambda row: row["first"])
    middles = [sqrt(row["first"] * row["last"]) for row in kept]
    figure = go.Figure()
    drawn = add_bands(figure, kept, middles, preset)
    figure.add_vline(x=window, line={"color": INK, "width": preset.scaled(0.6), "dash": "dot"})
    figure.add_annotation(
        x=log10(window),
        y=0.02,
        xref="x",
        yref="paper",
        xanchor="right",
        yanchor="bottom",
        text="window",
        showarrow=False,
        font={"size": preset.points(preset.small)},
        xshift=-preset.scaled(2),
    )
    pairs = sum(row["pairs"] for row in kept)
    where = "mean over layers" if layer is None else f"layer {layer}"
    caption = (
        f"Share of the causal pairs at each distance that the mask keeps, {where}, with 95 % bootstrap intervals over "
        f"{kept[0]['units']:,} {kept[0]['unit']}s, beside {', '.join(name for name in drawn if name != 'Focus')}. "
        f"{pairs:,} pairs of {tokens:,} tokens; the dotted line is the window of {window} tokens"
        + (", which grows with the position." if grows else ".")
        + (" Window only: heads with full attention count with the window, as if they had none of it." if full else "")
    )
    return finish(
        figure,
        preset,
        title=f"Pairs kept by distance, {where}",
        caption=caption,
        corner=f"n = {pairs:,} pairs, {where}",
        xaxis=axis(preset, "Distance (tokens, logarithmic)", type="log", dtick=1, tickformat=",d"),
        yaxis=axis(preset, "Pairs kept (share)", tickformat=".0%", range=[0, 1.04]),
    )
