"""Matrices as vector rectangles: Plotly's own heatmaps become pixels in SVG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.style import INK, SEQUENTIAL, Preset


def colour_bar(preset: Preset, title: str, **more: Any) -> dict[str, Any]:
    """A colour bar at the right, as high as the plot."""
    small = preset.points(preset.small)
    return {
        "title": {"text": title, "side": "right", "font": {"size": small}},
        "thickness": preset.scaled(6),
        "len": 1,
        "lenmode": "fraction",
        "y": 0.5,
        "x": 1,
        "xpad": preset.scaled(4),
        "ypad": 0,
        "outlinewidth": preset.scaled(0.5),
        "tickfont": {"size": small},
        "ticks": "outside",
        "ticklen": preset.scaled(2),
        "nticks": 5,
    } | more


def add_cells(
    figure: go.Figure,
    columns: Sequence[float],
    rows: Sequence[float],
    values: Sequence[float],
    *,
    limits: tuple[float, float],
    bar: dict[str, Any],
    hover: str,
) -> None:
    """Squares of side 1 around (column, row), darker for larger values.

    Args:
        limits: values of the lightest and the darkest colour.
    """
    scale = [[place / (len(SEQUENTIAL) - 1), colour] for place, colour in enumerate(SEQUENTIAL)]
    shade = {"color": list(values), "colorscale": scale, "cmin": limits[0], "cmax": limits[1]}
    figure.add_bar(
        x=list(columns),
        base=[row - 0.5 for row in rows],
        y=[1] * len(rows),
        width=1,
        showlegend=False,
        # an outline of the same colour hides the seams that viewers draw between rectangles
        marker=shade | {"line": {"width": 0.4, **shade}, "colorbar": bar},
        customdata=list(values),
        hovertemplate=hover,
    )
    figure.update_layout(bargap=0, barmode="overlay")


def add_numbers(
    figure: go.Figure,
    columns: Sequence[float],
    rows: Sequence[float],
    texts: Sequence[str],
    dark: Sequence[bool],
    size: float,
) -> None:
    """Numbers in cells, white on dark ones.

    Args:
        figure: to add them to.
        columns: x of each cell.
        rows: y of each cell.
        texts: one for each cell.
        dark: whether each cell is dark.
        size: of the type, in pixels.
    """
    for colour, on_dark in (("#ffffff", True), (INK, False)):
        chosen = [place for place, value in enumerate(dark) if value == on_dark]
        figure.add_scatter(
            x=[columns[place] for place in chosen],
            y=[rows[place] for place in chosen],
            mode="text",
            text=[texts[place] for place in chosen],
            textfont={"size": size, "color": colour},
            hoverinfo="skip",
            showlegend=False,
        )
