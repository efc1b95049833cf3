"""Word categories in each group of one layer, compared with their shares of the text."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from focus_explorer.views.figures.cells import add_cells, add_numbers, colour_bar
from focus_explorer.views.figures.style import INK, Preset, axis, finish
from focus_explorer.words import counted

MOST = 14  # categories; the rest are added up
NAMES = {"pos": "parts of speech", "dep": "syntactic relations", "word": "word classes"}
REST = "others"


def categories_figure(rows: list[dict[str, Any]], scheme: str, layer: int, preset: Preset) -> go.Figure:
    """Share of each group's tokens in each category; the column at the left is the whole text.

    Args:
        rows: of the table `categories`, of one layer and scheme.
    """
    of_text = {row["category"]: row["share_of_text"] for row in rows}
    ranked = sorted((name for name in of_text if of_text[name] > 0), key=lambda name: -of_text[name])
    shown = ranked if len(ranked) <= MOST else ranked[: MOST - 1]
    groups = sorted({row["group"] for row in rows}, key=lambda label: (len(label), label))
    shares = {(row["group"], row["category"]): row["share"] or 0.0 for row in rows}
    labels = shown + ([REST] if len(shown) < len(ranked) else [])
    columns: list[float] = []
    lines: list[int] = []
    values: list[float] = []
    for place, group in enumerate(["text", *groups]):
        stack = [of_text[name] if group == "text" else shares.get((group, name), 0.0) for name in shown]
        if len(labels) > len(shown):
            stack.append(max(0.0, 1 - sum(stack)) if sum(stack) else 0.0)
        columns += [place + (0 if group == "text" else 0.25)] * len(stack)
        lines += range(len(stack))
        values += stack
    figure = go.Figure()
    top = max(values)
    bar = colour_bar(preset, "Share of tokens", tickformat=".0%")
    add_cells(figure, columns, lines, values, limits=(0.0, top), bar=bar, hover="%{marker.color:.1%}<extra></extra>")
    small = max(preset.points(6), preset.points(preset.small) * 0.9)
    add_numbers(
        figure,
        columns,
        lines,
        [f"{100 * value:.0f}" for value in values],
        [value > 0.5 * top for value in values],
        small,
    )
    figure.add_vline(x=0.625, line={"color": INK, "width": preset.scaled(0.6)})
    sizes = {row["group"]: row["group_tokens"] for row in rows}
    total = sum(sizes.values())
    caption = (
        f"{NAMES.get(scheme, scheme).capitalize()} of the tokens of every group in layer {layer}, in per cent of the "
        f"group's tokens, beside the whole text ({counted(total, 'token')}). Sizes: "
        + ", ".join(f"{group} {sizes[group]:,}" for group in groups)
        + "."
    )
    return finish(
        figure,
        preset,
        title=f"{NAMES.get(scheme, scheme).capitalize()} by group, layer {layer}",
        caption=caption,
        corner=f"n = {counted(total, 'token')}, layer {layer}, % of each group",
        height=0.55 + 0.055 * len(labels),
        xaxis=axis(
            preset,
            "Group",
            tickvals=[0, *(place + 1.25 for place in range(len(groups)))],
            ticktext=["text", *groups],
            range=[-0.5, len(groups) + 0.75],
            ticks="",
        ),
        yaxis=axis(
            preset, "", tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.5, -0.5], ticks=""
        ),
    )
