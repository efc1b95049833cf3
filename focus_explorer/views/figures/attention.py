"""Where the frozen model's full attention goes under the executed mask, by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from focus_explorer.views.figures.style import INK, Preset, axis, finish, spread
from focus_explorer.words import counted

# Light to dark upwards, so that the bars also differ in grey; hues of the page's causes.
PARTS = (("local", "window", "#234a7d"), ("sinks", "sinks", "#a69b2a"), ("grouped", "same group", "#eebf97"))


def attention_figure(rows: list[dict[str, Any]], pairs: dict[int, float], preset: Preset) -> go.Figure:
    """Mean over heads of the probability kept, by cause, with the heads' range, and the share of pairs kept.

    Args:
        rows: of the query `attention_mass`.
        pairs: layer -> share of the causal pairs that are kept.
    """
    layers = sorted({row["layer"] for row in rows})
    by_layer = {layer: [row for row in rows if row["layer"] == layer] for layer in layers}
    figure = go.Figure()
    for key, name, colour in PARTS:
        heights = [float(np.mean([row[key] for row in by_layer[layer]])) for layer in layers]
        figure.add_bar(
            x=layers, y=heights, name=name, marker={"color": colour, "line": {"color": "#ffffff", "width": 0.5}}
        )
    kept = [np.array([row["mass_kept"] for row in by_layer[layer]]) for layer in layers]
    means = [float(values.mean()) for values in kept]
    figure.add_scatter(
        x=layers,
        y=means,
        mode="markers",
        showlegend=False,
        marker={"size": 0.1, "color": INK},
        error_y=spread(preset, INK, means, [float(v.min()) for v in kept], [float(v.max()) for v in kept]),
    )
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="markers",
        name="range of heads",
        marker={"symbol": "line-ns", "size": preset.scaled(6), "line": {"color": INK, "width": preset.scaled(0.8)}},
    )
    figure.add_scatter(
        x=layers,
        y=[pairs[layer] for layer in layers],
        mode="markers",
        name="pairs kept",
        marker={
            "symbol": "diamond",
            "size": preset.scaled(4.5),
            "color": "#ffffff",
            "line": {"color": INK, "width": preset.scaled(0.8)},
        },
    )
    heads, tokens = len(rows) // len(layers), rows[0]["num_tokens"]
    caption = (
        f"Share of the frozen model's full attention that the executed mask keeps, by cause: mean over "
        f"{counted(heads, 'head')} "
        f"and {counted(tokens, 'query position')}; lines span the heads' shares. Diamonds: share of causal pairs kept."
    )
    return finish(
        figure,
        preset,
        title="Attention kept by layer",
        caption=caption,
        barmode="stack",
        bargap=0.15,
        corner=f"n = {counted(tokens, 'query', 'queries')}, {counted(heads, 'head')}",
        xaxis=axis(preset, "Layer", range=[layers[0] - 0.7, layers[-1] + 0.7]),
        yaxis=axis(preset, "Share of attention kept", tickformat=".0%", range=[0, 1.02]),
    )
