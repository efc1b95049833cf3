"""Share of pairs that the mask keeps, by distance, with baselines."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10, sqrt
from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.bands import add_bands, interval_words
from focus_explorer.views.figures.style import INK, Preset, axis, finish
from focus_explorer.words import counted


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
    """One line for Focus and each baseline over the distance.

    Args:
        rows: of the table `distances`, of one layer or of the mean over layers.
        windows: w of the heads that are shown, in any order; none where all attend fully.
        tokens: of the text.
        layer: None for the mean.
        preset: size and type.
        grows: whether windows grow with the position.
        full: whether some heads attend fully.
    """
    kept = sorted((row | {"value": row["share"]} for row in rows if row["first"] > 0), key=lambda row: row["first"])
    middles = [sqrt(row["first"] * row["last"]) for row in kept]
    figure = go.Figure()
    drawn = add_bands(figure, kept, middles, preset)
    lines = sorted({window for window in (min(windows, default=0), max(windows, default=0)) if window > 0})
    for window in lines:
        figure.add_vline(x=window, line={"color": INK, "width": preset.scaled(0.6), "dash": "dot"})
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
    growing = ", growing with the position" if grows and longest else ""
    if not longest:
        return "the window is 0 tokens, for which there is no line"
    most = f"{counted(longest, 'token')}{growing}"
    if shortest == longest:
        return f"the dotted line is the window of {most}"
    if not shortest:
        return f"the windows of the heads are 0 to {most}, and the dotted line is the longest"
    which = f"{shortest} and {most}"
    return f"the dotted lines are the shortest and the longest window of the heads, {which}"
