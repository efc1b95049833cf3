"""Figures of the pairs: the executed mask, the share kept by distance, and the attention that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10, sqrt
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.views.figures.style import INK, Preset, add_bands, axis, finish, interval_words, mark, rule, spread
from focus_explorer.words import counted

CELLS = 64  # a side; more are no longer seen in print and make a file heavy
# Hues of the page; lightness differs too: both darkest, then window, sinks, group, dropped.
CAUSES = {
    "local_and_group": ("both", "#37357f"),
    "local_only": ("window", "#2f78ad"),
    "sink_only": ("sink", "#8f8000"),
    "group_only": ("same group", "#e7a877"),
    "dropped": ("dropped", "#f1f2f4"),
}


def mask_figure(rows: pa.Table, layer: int, tokens: int, preset: Preset, *, heads: str = "") -> go.Figure:
    """Blocks of pairs by query and key; `heads`: which heads and what they executed, where they differ."""
    block = rows["block_size"][0].as_py()
    counts, side = _reduced(rows)
    step = block * side
    totals = counts.sum(axis=0)
    down, across = np.nonzero(totals)
    shares = counts[:, down, across] / totals[down, across]
    colours = [_mixed(share) for share in shares.T]
    shares_of = [f"{name} %{{customdata[{place}]}} %" for place, (name, _) in enumerate(CAUSES.values())]
    figure = go.Figure()
    figure.add_bar(
        x=(across + 0.5) * step,
        base=down * step,
        y=np.full(down.size, step),
        width=np.full(down.size, step),
        marker={"color": colours, "line": {"color": colours, "width": 0.4}},
        showlegend=False,
        customdata=np.round(100 * shares.T),
        hovertemplate="<br>".join(shares_of) + "<extra></extra>",
    )
    for name, colour in CAUSES.values():
        shown = {"symbol": "square", "color": colour, "size": preset.scaled(7), "line": {"color": INK, "width": 0.5}}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=shown)
    whole = counts.sum(axis=(1, 2))
    kept = 1 - whole[-1] / whole.sum()
    setting = f" ({heads})" if heads else ""
    caption = (
        f"Executed mask of layer {layer}{setting}: {counted(int(whole.sum()), 'causal pair')} of "
        f"{counted(tokens, 'token')} in blocks of {step} × {step}. A block has the colours of what keeps or drops its "
        f"pairs, mixed by their number: the window, a shared group, both, or a sink alone. {kept:.1%} of the pairs are "
        "kept; "
        + ", ".join(f"{name} {n / whole.sum():.1%}" for (name, _), n in zip(CAUSES.values(), whole, strict=True))
        + "."
    )
    which = f"layer {layer}" + (f", {heads.partition(':')[0]}" if heads else "")
    ends = [0, len(totals) * step]
    small = preset.width_px / preset.height_px < 2
    both: dict[str, Any] = {"constrain": "domain", "nticks": 6, "tickformat": ",d"}
    return finish(
        figure,
        preset,
        title=f"Executed mask of {which}",
        caption=caption,
        height=1.5 if small else 1.25,
        corner=f"n = {counted(tokens, 'token')}, {which}, {kept:.0%} of pairs kept",
        bargap=0,
        barmode="overlay",
        xaxis=axis(preset, "Key position (tokens)", range=ends, **both),
        yaxis=axis(preset, "Query position (tokens)", range=ends[::-1], scaleanchor="x", **both),
    )


def _reduced(rows: pa.Table) -> tuple[NDArray[np.float64], int]:
    """(causes, side, side) pair counts of at most `CELLS` a side, and how many blocks make one cell's side."""
    down, across = (rows[name].to_numpy() for name in ("row_block", "col_block"))
    side = -(-int(down.max() + 1) // CELLS)
    cells = -(-int(down.max() + 1) // side)
    counts = np.zeros((len(CAUSES), cells, cells))
    for place, name in enumerate(CAUSES):
        np.add.at(counts[place], (down // side, across // side), rows[name].to_numpy())
    return counts, side


def _mixed(shares: NDArray[np.float64]) -> str:
    parts = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for _, colour in CAUSES.values()])
    return "#" + "".join(f"{round(value):02x}" for value in shares @ parts)


def distances_figure(
    rows: list[dict[str, Any]],
    windows: Sequence[int],
    tokens: int,
    layer: int | None,
    preset: Preset,
    *,
    grows: bool = False,
    full: bool = False,
) -> go.Figure:
    """One line for Focus and each baseline over the distance, of a layer or (None) the mean over layers.

    `rows` are of the table `distances`; `windows` those of the heads shown, none where all attend fully.
    """
    kept = sorted((row | {"value": row["share"]} for row in rows if row["first"] > 0), key=lambda row: row["first"])
    middles = [sqrt(row["first"] * row["last"]) for row in kept]
    figure = go.Figure()
    drawn = add_bands(figure, kept, middles, preset)
    lines = sorted({window for window in (min(windows, default=0), max(windows, default=0)) if window > 0})
    for window in lines:
        figure.add_vline(x=window, line=rule(preset, "dot"))
    if lines:
        figure.add_annotation(
            x=log10(lines[-1]),
            y=0.02,
            xref="x",
            yref="paper",
            xanchor="right",
            yanchor="bottom",
            text="window" if len(lines) == 1 else "windows",
            showarrow=False,
            font={"size": preset.points(preset.small)},
            xshift=-preset.scaled(2),
        )
    pairs = sum(row["pairs"] for row in kept)
    where = "mean over layers" if layer is None else f"layer {layer}"
    caption = (
        f"Share of the causal pairs at each distance that the mask keeps, {where}, {interval_words(kept)}, "
        f"beside {', '.join(name for name in drawn if name != 'Focus')}. "
        + ("Window only: heads with full attention count with the window, as if they had none of it. " if full else "")
        + f"{counted(pairs, 'pair')} of {counted(tokens, 'token')}; {_window_words(windows, grows)}."
    )
    return finish(
        figure,
        preset,
        title=f"Pairs kept by distance, {where}",
        caption=caption,
        corner=f"n = {counted(pairs, 'pair')}, {where}",
        xaxis=axis(preset, "Distance (tokens, logarithmic)", type="log", dtick=1, tickformat=",d"),
        yaxis=axis(preset, "Pairs kept (share)", tickformat=".0%", range=[0, 1.04]),
    )


def _window_words(windows: Sequence[int], grows: bool) -> str:
    """What the dotted lines are; a logarithmic axis has no place for a window of no tokens."""
    if not windows:
        return "full attention has no window"
    shortest, longest = min(windows), max(windows)
    if not longest:
        return "the window is 0 tokens, for which there is no line"
    most = f"{counted(longest, 'token')}{', growing with the position' if grows else ''}"
    if shortest == longest:
        return f"the dotted line is the window of {most}"
    if not shortest:
        return f"the windows of the heads are 0 to {most}, and the dotted line is the longest"
    return f"the dotted lines are the shortest and the longest window of the heads, {shortest} and {most}"


# Light to dark upwards, so that the bars also differ in grey; hues of the page's causes.
PARTS = (("local", "window", "#234a7d"), ("sinks", "sinks", "#a69b2a"), ("grouped", "same group", "#eebf97"))


def attention_figure(rows: list[dict[str, Any]], pairs: dict[int, float], preset: Preset) -> go.Figure:
    """Mean over heads of the probability kept, by cause, with the heads' range; `pairs`: share of pairs kept."""
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
        x=[None], y=[None], mode="markers", name="range of heads", marker=mark(preset, INK, "line-ns", 6, edge=0.8)
    )
    figure.add_scatter(
        x=layers,
        y=[pairs[layer] for layer in layers],
        mode="markers",
        name="pairs kept",
        marker=mark(preset, INK, "diamond", 4.5, fill="#ffffff", edge=0.8),
    )
    heads, tokens = len(rows) // len(layers), rows[0]["num_tokens"]
    caption = (
        f"Share of the frozen model's full attention that the executed mask keeps, by cause: mean over "
        f"{counted(heads, 'head')} and {counted(tokens, 'query position')}; lines span the heads' shares. Diamonds: "
        "share of causal pairs kept."
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
