"""The executed mask of one layer in blocks: every block has the colours of its causes, mixed by their pairs."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.views.figures.style import INK, Preset, axis, finish
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
    """Blocks of pairs on and below the diagonal; query positions down, key positions across.

    Args:
        rows: of the query `mask`.
        layer: its number.
        tokens: T.
        preset: size and type.
        heads: which heads of the layer and what they executed, where these differ.
    """
    block = rows["block_size"][0].as_py()
    counts, side = _reduced(rows)
    step = block * side
    totals = counts.sum(axis=0)
    down, across = np.nonzero(totals)
    shares = counts[:, down, across] / totals[down, across]
    colours = [_mixed(share) for share in shares.T]
    figure = go.Figure()
    figure.add_bar(
        x=(across + 0.5) * step,
        base=down * step,
        y=np.full(down.size, step),
        width=np.full(down.size, step),
        marker={"color": colours, "line": {"color": colours, "width": 0.4}},
        showlegend=False,
        customdata=np.round(100 * shares.T),
        hovertemplate=_hover(),
    )
    for name, colour in CAUSES.values():
        mark = {"symbol": "square", "color": colour, "size": preset.scaled(7), "line": {"color": INK, "width": 0.5}}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=mark)
    whole = counts.sum(axis=(1, 2))
    kept = 1 - whole[-1] / whole.sum()
    setting = f" ({heads})" if heads else ""
    caption = (
        f"Executed mask of layer {layer}{setting}: {counted(int(whole.sum()), 'causal pair')} of "
        f"{counted(tokens, 'token')} in "
        f"blocks of {step} × {step}. A block has the colours of what keeps or drops its pairs, mixed by their number: "
        f"the window, a shared group, both, or a sink alone. {kept:.1%} of the pairs are kept; "
        + ", ".join(f"{name} {n / whole.sum():.1%}" for (name, _), n in zip(CAUSES.values(), whole, strict=True))
        + "."
    )
    which = f"layer {layer}" + (f", {heads.partition(':')[0]}" if heads else "")
    ends = [0, len(totals) * step]
    small = preset.width_px / preset.height_px < 2
    return finish(
        figure,
        preset,
        title=f"Executed mask of {which}",
        caption=caption,
        height=1.5 if small else 1.25,
        corner=f"n = {counted(tokens, 'token')}, {which}, {kept:.0%} of pairs kept",
        bargap=0,
        barmode="overlay",
        xaxis=axis(preset, "Key position (tokens)", range=ends, constrain="domain", nticks=6, tickformat=",d"),
        yaxis=axis(
            preset,
            "Query position (tokens)",
            range=ends[::-1],
            scaleanchor="x",
            constrain="domain",
            nticks=6,
            tickformat=",d",
        ),
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


def _hover() -> str:
    lines = [f"{name} %{{customdata[{place}]}} %" for place, (name, _) in enumerate(CAUSES.values())]
    return "<br>".join(lines) + "<extra></extra>"
