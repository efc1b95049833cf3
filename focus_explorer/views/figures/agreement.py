"""How far every two layers sort the tokens alike."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.cells import add_cells, colour_bar
from focus_explorer.views.figures.style import Preset, axis, finish
from focus_explorer.words import counted


def agreement_figure(rows: list[dict[str, Any]], preset: Preset) -> go.Figure:
    """Adjusted Rand index of every two layers; the diagonal, which is 1, is left out.

    Args:
        rows: of the table `agreement`.
    """
    layers = sorted({row[key] for row in rows for key in ("layer", "other_layer")})
    place = {layer: layers[0] + number for number, layer in enumerate(layers)}  # side by side, whatever lies between
    columns, lines, values, names = [], [], [], []
    for row in rows:
        for one, other in ((row["layer"], row["other_layer"]), (row["other_layer"], row["layer"])):
            columns.append(place[one])
            lines.append(place[other])
            values.append(row["adjusted_rand"])
            names.append([one, other])
    figure = go.Figure()
    top = max(values)
    bar = colour_bar(preset, "Adjusted Rand index")
    add_cells(
        figure,
        columns,
        lines,
        values,
        limits=(min(0.0, min(values)), top),
        bar=bar,
        hover="layers %{customdata[0]:.0f} and %{customdata[1]:.0f}: %{marker.color:.3f}<extra></extra>",
    )
    figure.data[0].customdata = names
    neighbours = [row["adjusted_rand"] for row in rows if abs(place[row["other_layer"]] - place[row["layer"]]) == 1]
    shuffled_high = max(row["shuffled_high"] for row in rows)
    count = rows[0]["count"]
    caption = (
        f"Adjusted Rand index of the groups of every two layers over {counted(count, 'token')}; 1 is the same "
        "sorting, 0 is "
        f"chance. Neighbouring layers {min(neighbours):.2f} to {max(neighbours):.2f}. {_widest_words(rows)}; "
        f"shuffled groups reach at most {shuffled_high:.3f}."
    )
    ends = [layers[0] - 0.5, place[layers[-1]] + 0.5]
    shown = range(0, len(layers), -(-len(layers) // 8))
    ticks: dict[str, Any] = {"nticks": 8}
    if place[layers[-1]] != layers[-1]:  # some layers have no groups: their numbers are not the places
        ticks = {"tickvals": [place[layers[i]] for i in shown], "ticktext": [str(layers[i]) for i in shown]}
    return finish(
        figure,
        preset,
        title="Agreement of layers",
        caption=caption,
        height=1.25,
        corner=f"n = {counted(count, 'token')}, {counted(len(layers), 'layer')}",
        xaxis=axis(preset, "Layer", range=ends, constrain="domain", **ticks),
        yaxis=axis(preset, "Layer", range=ends, scaleanchor="x", constrain="domain", **ticks),
    )


def _widest_words(rows: list[dict[str, Any]]) -> str:
    """How wide the intervals are; fewer than two units give none."""
    widths = [row["high"] - row["low"] for row in rows if row["low"] is not None]
    units = counted(rows[0]["units"], rows[0]["unit"])
    return (
        f"95 % intervals over {units} are at most ±{max(widths) / 2:.3f} wide" if widths else f"No interval ({units})"
    )
