"""Do groups follow word categories? Purity and mutual information by layer, with their baselines."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.bands import add_bands, interval_words
from focus_explorer.views.figures.style import Preset, axis, finish
from focus_explorer.words import counted

PANELS = (("purity", "Purity"), ("nmi", "Normalised mutual<br>information"))
NAMES = {"pos": "parts of speech", "dep": "syntactic relations", "word": "word classes"}


def structure_figure(rows: list[dict[str, Any]], scheme: str, preset: Preset) -> go.Figure:
    """Two panels, side by side where there is room, with interval bands.

    Args:
        rows: of the table `statistics`, scope `layer`, of one category set.
    """
    figure = go.Figure()
    wide = preset.width_px > 1.7 * preset.height_px
    places = _places(wide)
    layout: dict[str, Any] = {}
    drawn: list[str] = []
    for number, (statistic, label) in enumerate(PANELS):
        shown = sorted((row for row in rows if row["statistic"] == statistic), key=lambda row: row["layer"])
        layers = [row["layer"] for row in shown]
        end = "" if number == 0 else str(number + 1)
        drawn = add_bands(figure, shown, layers, preset, legend=number == 0, xaxis=f"x{end}", yaxis=f"y{end}")
        across, up = places[number]
        below = wide or number == len(PANELS) - 1
        ends = [layers[0] - 0.5, layers[-1] + 0.5]
        layout[f"xaxis{end}"] = axis(
            preset, "Layer" if below else "", range=ends, domain=across, anchor=f"y{end}", showticklabels=below
        )
        layout[f"yaxis{end}"] = axis(preset, label, rangemode="tozero", domain=up, anchor=f"x{end}", nticks=6)
    of_purity = [row for row in rows if row["statistic"] == PANELS[0][0]]
    first = of_purity[0]
    baselines = ", ".join(name for name in drawn if name != "Focus")
    caption = (
        f"Purity and normalised mutual information of groups and {NAMES.get(scheme, scheme)} by layer, of "
        f"{first['count']:,} {first['denominator']}, {interval_words(of_purity)}, beside {baselines}. "
        "The band of shuffled groups is the range of 95 % of the draws."
    )
    return finish(
        figure,
        preset,
        title=f"Groups and {NAMES.get(scheme, scheme)} by layer",
        caption=caption,
        height=1.0 if wide else 1.5,
        corner=f"n = {counted(first['count'], 'token')}, {counted(first['units'], first['unit'])}",
        **layout,
    )


def _places(wide: bool) -> list[tuple[list[float], list[float]]]:
    if wide:
        return [([0.0, 0.41], [0.0, 1.0]), ([0.59, 1.0], [0.0, 1.0])]
    return [([0.0, 1.0], [0.54, 1.0]), ([0.0, 1.0], [0.0, 0.46])]
