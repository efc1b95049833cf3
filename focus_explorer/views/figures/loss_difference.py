"""Loss with Focus minus loss with full attention along the text."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from focus_explorer.views.figures.style import FOCUS, INK, Preset, axis, finish
from focus_explorer.words import counted, ends

MOST_POINTS = 2500
BEYOND = 0.01  # of the points at either end are outside the axis, so that a few do not flatten the rest


def loss_difference_figure(
    positions: NDArray[np.int64],
    differences: NDArray[np.float64],
    interval: tuple[float, float | None, float | None],
    preset: Preset,
) -> go.Figure:
    """Points per token (means of neighbours in a long text), a running mean and the mean over the text.

    Args:
        positions, differences: (T - 1,) in text order, nats.
        interval: mean, low and high of the differences; one difference has no ends.
    """
    count = differences.size
    each = -(-count // MOST_POINTS)
    window = min(max(8, count // 40), count)
    x, y = _means(positions, each), _means(differences, each)
    running_x, running = _running(positions, window), _running(differences, window)
    low, high = np.quantile(y, [BEYOND, 1 - BEYOND])
    room = 0.1 * max(high - low, 1e-3)
    floor, ceiling = min(low, running.min(), 0) - room, max(high, running.max(), 0) + room
    outside = int(((y < floor) | (y > ceiling)).sum())
    figure = go.Figure()
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        name="token" if each == 1 else f"mean of {each} tokens",
        marker={"size": preset.scaled(1.8), "color": "#9aa0a8"},
    )
    figure.add_scatter(
        x=running_x,
        y=running,
        mode="lines",
        name=f"mean of {counted(window, 'token')}",
        line={"color": FOCUS, "width": preset.scaled(1.6)},
    )
    figure.add_hline(y=0, line={"color": INK, "width": preset.scaled(0.6), "dash": "dash"})
    mean, lower, upper = interval
    bootstrap = "" if lower is None else "95 % moving-block bootstrap interval "
    caption = (
        "Loss with Focus minus loss with full attention, in nats per token; above 0 Focus predicts worse. Mean over "
        f"{counted(count, 'token')} {mean:+.4f} ({bootstrap}{ends(lower, upper, '+.4f')}). Line: "
        f"running mean of {counted(window, 'token')}."
        + (f" {counted(outside, 'point')} {'lies' if outside == 1 else 'lie'} outside the axis." if outside else "")
    )
    return finish(
        figure,
        preset,
        title="Loss difference along the text",
        caption=caption,
        corner=f"n = {counted(count, 'scored token')}, mean {mean:+.3f} ({ends(lower, upper, '+.3f')})",
        xaxis=axis(
            preset, "Position in the text (tokens)", range=[0, int(positions[-1]) + 1], tickformat=",d", nticks=6
        ),
        yaxis=axis(preset, "Focus − full (nats per token)", range=[floor, ceiling]),
    )


def _means(values: NDArray[np.generic], each: int) -> NDArray[np.float64]:
    starts = np.arange(0, values.size, each)
    return np.add.reduceat(values.astype(np.float64), starts) / np.diff([*starts, values.size])


def _running(values: NDArray[np.generic], window: int) -> NDArray[np.float64]:
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    means = (sums[window:] - sums[:-window]) / window
    return means[:: max(1, means.size // 800)]
