"""Figures of what Focus costs and saves: loss along the text, quality over pairs kept, times, speed over length."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from focus_explorer.views.figures.style import FOCUS, FULL, RANDOM, WINDOW, Preset, axis, finish, mark, rule, spread
from focus_explorer.words import counted, ends
from focus_runtime.config import setting_words

MOST_POINTS = 2500
BEYOND = 0.01  # of the points at either end are outside the axis, so that a few do not flatten the rest


def loss_difference_figure(
    positions: NDArray[np.int64],
    differences: NDArray[np.float64],
    interval: tuple[float, float | None, float | None],
    preset: Preset,
) -> go.Figure:
    """Points per token (means of neighbours in a long text), a running mean and the mean over the text.

    Positions and differences in nats of all tokens but the first; mean, low and high: one difference has no ends.
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
    figure.add_hline(y=0, line=rule(preset, "dash"))
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


KINDS = {
    "focus": ("Focus", FOCUS, "circle"),
    "window": ("window only", WINDOW, "square-open"),
    "random": ("random centroids", RANDOM, "triangle-up-open"),
}
ENDS = ("mean", "low", "high")


def quality_figure(rows: list[dict[str, Any]], note: str, preset: Preset) -> go.Figure:
    """Loss difference with its interval, where there is one, over the share of pairs kept; `note` ends the caption."""
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
            marker=mark(preset, colour, symbol, 5),
            error_y=spread(preset, colour, *([row[f"delta_{end}"] for row in of_kind] for end in ENDS))
            if known
            else None,
        )
    figure.add_hline(y=0, line=rule(preset, "dash"))
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


STAGES = {
    "end_to_end": "forward pass",
    "attention": "attention",
    "routing": "· routing",
    "sort": "· sort",
    "same_group": "· same group",
    "local": "· window",
    "sinks": "· sinks",
    "merge": "· merge",
}
MODES = (("full", "full attention", FULL, "circle", -0.16), ("focus", "Focus", FOCUS, "square-open", 0.16))


def timings_figure(rows: list[dict[str, Any]], run: dict[str, Any], preset: Preset) -> go.Figure:
    """One line per stage; the time axis is logarithmic; `rows`: of the query `timings`."""
    shown = [name for name in STAGES if any(row["stage"] == name and row["median"] > 0 for row in rows)]
    figure = go.Figure()
    for mode, name, colour, symbol, shift in MODES:
        of_mode = [row for row in rows if row["mode"] == mode and row["stage"] in shown and row["median"] > 0]
        figure.add_scatter(
            x=[row["median"] for row in of_mode],
            y=[shown.index(row["stage"]) + shift for row in of_mode],
            mode="markers",
            name=name,
            marker=mark(preset, colour, symbol, 4.5),
            error_x=spread(preset, colour, *([row[key] for row in of_mode] for key in ("median", "low", "high"))),
        )
    repeats = sorted({row["repeats"] for row in rows})
    repeated = counted(repeats[0], "repeat") if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]} repeats"
    caption = (
        f"Wall time by stage on {counted(run['num_tokens'], 'token')} ({run['device']}, {run['dtype']}, backend "
        f"{run['backend']}): median and range of {repeated} after a warm-up, full attention and Focus "
        "in turn. Stages with a dot are parts of Focus attention."
    )
    return finish(
        figure,
        preset,
        title="Time by stage",
        caption=caption,
        corner=f"n = {repeated}, {counted(run['num_tokens'], 'token')}",
        xaxis=axis(
            preset,
            "Time (ms, logarithmic)",
            type="log",
            dtick=1,
            tickformat=",~r",
            showgrid=True,
            gridcolor="#e6e6e6",
            gridwidth=0.5,
        ),
        yaxis=axis(
            preset,
            "",
            tickvals=list(range(len(shown))),
            ticktext=[STAGES[name] for name in shown],
            range=[len(shown) - 0.5, -0.5],
        ),
    )


LAYER = "one attention layer, heads alike, with routing"
SPEEDS = (  # a part of what was measured, its columns of tokens and of ratios, name and look of the line
    ("layer", "tokens", "full_over_focus_with_routing", LAYER, "#0072b2", "solid"),
    ("layer", "tokens", "limit", "pairs kept: limit for one kernel", "#0072b2", "dot"),
    ("prefill", "tokens", "full_over_focus", "whole model, prefill", "#d55e00", "solid"),
    ("decode", "past_tokens", "full_over_focus", "whole model, decode", "#009e73", "solid"),
)


def speed_figure(result: dict[str, Any]) -> go.Figure:
    """Full attention's time over Focus's, by tokens, from what `bench` measures; above 1 Focus is faster."""
    figure = go.Figure()
    for part, tokens, ratio, name, colour, dash in SPEEDS:
        if rows := result[part]:
            figure.add_scatter(
                x=[row[tokens] for row in rows],
                y=[row[ratio] for row in rows],
                name=name,
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"size": 7},
            )
    made_of = f"{result['model']}, {setting_words(result['config'])}, {result['dtype']}"
    figure.add_hline(y=1, line={"color": "#888888", "width": 1})
    figure.update_layout(
        title={"text": f"Focus beside full attention<br><sup>{made_of}</sup>"},
        template="plotly_white",
        width=760,
        height=460,
        font={"family": "Arial, sans-serif", "size": 14},
        xaxis={
            "type": "log",
            "title": "tokens",
            "tickvals": sorted({x for trace in figure.data for x in trace.x}),
            "tickformat": ",d",
        },
        yaxis={"title": "times as fast as full attention", "rangemode": "tozero"},
        legend={"orientation": "h", "y": -0.2},
        margin={"l": 70, "r": 20, "t": 80, "b": 80},
    )
    return figure
