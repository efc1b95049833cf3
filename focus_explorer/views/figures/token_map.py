"""The map of one layer's tokens from stored coordinates, as vector points of one shape and colour per group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from focus_explorer.views.figures.style import INK, Preset, axis, finish, group_mark
from focus_explorer.words import counted
from focus_runtime.mask.rule import group_label


def token_map_figure(
    rows: list[dict[str, Any]], groups: dict[int, int], pieces: Sequence[str], layer: int, preset: Preset
) -> go.Figure:
    """Points by most probable group; centroids as letters.

    Args:
        rows: of the query `projection`; positions below 0 are centroids. Its parameters say of how many tokens the
            map shows some, unless an early version stored it.
        groups: position -> most probable group.
        pieces: texts of the tokens by position, for pointing at.
    """
    figure = go.Figure()
    tokens = [row for row in rows if row["position"] >= 0]
    size = preset.scaled(2.6 if len(tokens) > 1000 else 3.4)
    for group in sorted({groups[row["position"]] for row in tokens}):
        members = [row for row in tokens if groups[row["position"]] == group]
        letter, mark = group_label(group), group_mark(group)
        figure.add_scatter(x=[None], y=[None], mode="markers", name=letter, marker=mark | {"size": preset.scaled(5)})
        figure.add_scatter(
            x=[row["x"] for row in members],
            y=[row["y"] for row in members],
            mode="markers",
            showlegend=False,
            text=[pieces[row["position"]] for row in members],
            hovertemplate="%{text}<extra>" + letter + "</extra>",
            marker=mark | {"size": size, "opacity": 0.75, "line": {"width": 0}},
        )
    centres = [row for row in rows if row["position"] < 0]
    if centres:
        figure.add_scatter(
            x=[row["x"] for row in centres],
            y=[row["y"] for row in centres],
            mode="markers+text",
            showlegend=False,
            text=[f"<b>{group_label(-row['position'] - 1)}</b>" for row in centres],
            textposition="middle center",
            hovertemplate="centroid %{text}<extra></extra>",
            textfont={"size": preset.points(preset.small), "color": INK},
            marker={"size": preset.scaled(10), "color": "#ffffff", "line": {"color": INK, "width": preset.scaled(0.8)}},
        )
    first = rows[0]
    trust = first["trustworthiness"]
    quality = "too few tokens for a trustworthiness"
    if trust is not None:
        quality = f"trustworthiness {trust:.2f} on at most 2,000 tokens, 10 neighbours"
    whole = json.loads(first["parameters"]).get("of", len(tokens))
    shown = counted(len(tokens), "token") if whole == len(tokens) else f"{len(tokens):,} of {counted(whole, 'token')}"
    caption = (
        f"{first['method']} of the routing vectors of {shown} in layer {layer} (cosine, seed "
        f"{first['seed']}, {quality}). Each point is a token, shape and colour "
        "are its most probable group, circled letters are centroids. Axes have no unit."
    )
    return finish(
        figure,
        preset,
        title=f"Map of tokens in layer {layer}",
        caption=caption,
        height=1.3,
        corner=f"n = {shown}, layer {layer}" + (f", trustworthiness {trust:.2f}" if trust is not None else ""),
        xaxis=axis(preset, f"{first['method']} 1", **_span(rows, "x")),
        yaxis=axis(preset, f"{first['method']} 2", **_span(rows, "y"), scaleanchor="x", constrain="range"),
    )


def _span(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    values = np.array([row[name] for row in rows])
    room = 0.05 * (float(np.ptp(values)) or 1.0)
    return {"range": [float(values.min()) - room, float(values.max()) + room], "nticks": 6}
