"""How large the groups of every layer are. Letters mean nothing across layers, so sizes are shown by rank."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.style import FOCUS, INK, SOFT, Preset, axis, finish
from focus_explorer.words import counted


def group_sizes_figure(rows: list[dict[str, Any]], preset: Preset) -> go.Figure:
    """Shares of tokens by layer: the largest and the smallest group as lines, the others as points.

    Args:
        rows: of the query `groups`.
    """
    layers = sorted({row["layer"] for row in rows})
    shares = [sorted((row["share"] for row in rows if row["layer"] == layer), reverse=True) for layer in layers]
    count, tokens = len(shares[0]), rows[0]["num_tokens"]
    figure = go.Figure()
    width, size = preset.scaled(1.2), preset.scaled(3.6)
    others = [(layer, share) for layer, ranked in zip(layers, shares, strict=True) for share in ranked[1:-1]]
    if others:
        figure.add_scatter(
            x=[layer for layer, _ in others],
            y=[share for _, share in others],
            mode="markers",
            name="others",
            marker={"size": size * 0.8, "symbol": "line-ew", "line": {"color": SOFT, "width": width * 0.7}},
        )
    figure.add_scatter(
        x=layers,
        y=[ranked[0] for ranked in shares],
        mode="lines+markers",
        name="largest group",
        line={"color": FOCUS, "width": width},
        marker={"size": size, "color": FOCUS},
    )
    if count > 1:
        figure.add_scatter(
            x=layers,
            y=[ranked[-1] for ranked in shares],
            mode="lines+markers",
            name="smallest group",
            line={"color": FOCUS, "width": width, "dash": "dot"},
            marker={"size": size, "color": "#ffffff", "symbol": "square", "line": {"color": FOCUS, "width": width}},
        )
    ends = [layers[0] - 0.5, layers[-1] + 0.5]
    figure.add_scatter(
        x=ends,
        y=[1 / count] * 2,
        mode="lines",
        name=f"even, 1/{count}",
        line={"color": INK, "width": width * 0.7, "dash": "dash"},
    )
    caption = (
        f"Share of the {counted(tokens, 'token')} whose most probable group is the largest, the smallest and each of "
        f"the other of {counted(count, 'group')}, by layer. Dashed: groups of equal size."
    )
    return finish(
        figure,
        preset,
        title="Size of groups by layer",
        caption=caption,
        corner=f"n = {counted(tokens, 'token')}, {counted(count, 'group')}",
        xaxis=axis(preset, "Layer", range=ends),
        yaxis=axis(preset, "Share of tokens", tickformat=".0%", rangemode="tozero"),
    )
