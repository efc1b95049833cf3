"""Benchmark rows -> a figure of speed against length: one layer, the whole model, decoding."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.words import counted
from focus_runtime.budget import budget_digest
from focus_runtime.config import growth_words

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # Okabe and Ito's, safe for colour-vision deficiency


def _line(name: str, colour: str, tokens: list[int], ratios: list[float], dash: str = "solid") -> go.Scatter:
    style = {"color": colour, "width": 2, "dash": dash}
    return go.Scatter(x=tokens, y=ratios, name=name, mode="lines+markers", line=style, marker={"size": 7})


def speed_figure(result: dict[str, Any]) -> go.Figure:
    """Full attention's time over Focus's, by tokens; above 1 Focus is faster.

    Args:
        result: what `focus_explorer.usecases.bench.measure` returns.
    """
    figure = go.Figure()
    layer, prefill, decode = result["layer"], result["prefill"], result["decode"]
    if layer:
        tokens = [row["tokens"] for row in layer]
        ratios = [row["full_over_focus_with_routing"] for row in layer]
        figure.add_trace(_line("one attention layer, heads alike, with routing", BLUE, tokens, ratios))
        limits = [row["limit"] for row in layer]
        figure.add_trace(_line("pairs kept: limit for one kernel", BLUE, tokens, limits, "dot"))
    if prefill:
        tokens = [row["tokens"] for row in prefill]
        figure.add_trace(_line("whole model, prefill", ORANGE, tokens, [row["full_over_focus"] for row in prefill]))
    if decode:
        tokens = [row["past_tokens"] for row in decode]
        figure.add_trace(_line("whole model, decode", GREEN, tokens, [row["full_over_focus"] for row in decode]))
    config = result["config"]
    setting = (
        f"K={config['num_groups']}, k={config['top_k']}, w={config['window']}, {counted(config['num_sinks'], 'sink')}"
    )
    setting += f", windows {growth_words(config['window_growth'])}" if config.get("window_growth") else ""
    setting += f", with the budget {budget_digest(config['budget'])}" if config.get("budget") else ""
    figure.add_hline(y=1, line={"color": "#888888", "width": 1})
    figure.update_layout(
        title={"text": f"Focus beside full attention<br><sup>{result['model']}, {setting}, {result['dtype']}</sup>"},
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
