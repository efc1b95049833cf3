"""Figures of the groups: sizes, the map of tokens, word categories, and the agreement of layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from focus_explorer.views.figures import style
from focus_explorer.words import counted
from focus_runtime.mask.rule import group_label


def group_sizes_figure(rows: list[dict[str, Any]], preset: style.Preset) -> go.Figure:
    """Shares of tokens by layer: the largest and the smallest group as lines, the others as points."""
    layers = sorted({row["layer"] for row in rows})
    shares = [sorted((row["share"] for row in rows if row["layer"] == layer), reverse=True) for layer in layers]
    count, tokens = len(shares[0]), rows[0]["num_tokens"]
    figure = go.Figure()
    width, size = preset.scaled(1.2), preset.scaled(3.6)
    others = [(layer, share) for layer, ranked in zip(layers, shares, strict=True) for share in ranked[1:-1]]
    if others:
        figure.add_scatter(
            x=[layer for layer, _ in others],
            y=[share for _, share in others],
            mode="markers",
            name="others",
            marker={"size": size * 0.8, "symbol": "line-ew", "line": {"color": style.SOFT, "width": width * 0.7}},
        )
    figure.add_scatter(
        x=layers,
        y=[ranked[0] for ranked in shares],
        mode="lines+markers",
        name="largest group",
        line={"color": style.FOCUS, "width": width},
        marker={"size": size, "color": style.FOCUS},
    )
    if count > 1:
        figure.add_scatter(
            x=layers,
            y=[ranked[-1] for ranked in shares],
            mode="lines+markers",
            name="smallest group",
            line={"color": style.FOCUS, "width": width, "dash": "dot"},
            marker={
                "size": size,
                "color": "#ffffff",
                "symbol": "square",
                "line": {"color": style.FOCUS, "width": width},
            },
        )
    ends = [layers[0] - 0.5, layers[-1] + 0.5]
    figure.add_scatter(
        x=ends,
        y=[1 / count] * 2,
        mode="lines",
        name=f"even, 1/{count}",
        line={"color": style.INK, "width": width * 0.7, "dash": "dash"},
    )
    caption = (
        f"Share of the {counted(tokens, 'token')} whose most probable group is the largest, the smallest and each of "
        f"the other of {counted(count, 'group')}, by layer. Dashed: groups of equal size."
    )
    return style.finish(
        figure,
        preset,
        title="Size of groups by layer",
        caption=caption,
        corner=f"n = {counted(tokens, 'token')}, {counted(count, 'group')}",
        xaxis=style.axis(preset, "Layer", range=ends),
        yaxis=style.axis(preset, "Share of tokens", tickformat=".0%", rangemode="tozero"),
    )


def token_map_figure(
    rows: list[dict[str, Any]], groups: dict[int, int], pieces: Sequence[str], layer: int, preset: style.Preset
) -> go.Figure:
    """Points by most probable group, given by position; centroids as letters.

    `rows` are of the query `projection`; positions below 0 are centroids. An early version stored no number of tokens.
    """
    figure = go.Figure()
    tokens = [row for row in rows if row["position"] >= 0]
    size = preset.scaled(2.6 if len(tokens) > 1000 else 3.4)
    for group in sorted({groups[row["position"]] for row in tokens}):
        members = [row for row in tokens if groups[row["position"]] == group]
        letter, look = group_label(group), style.group_mark(group)
        figure.add_scatter(x=[None], y=[None], mode="markers", name=letter, marker=look | {"size": preset.scaled(5)})
        figure.add_scatter(
            x=[row["x"] for row in members],
            y=[row["y"] for row in members],
            mode="markers",
            showlegend=False,
            text=[pieces[row["position"]] for row in members],
            hovertemplate="%{text}<extra>" + letter + "</extra>",
            marker=look | {"size": size, "opacity": 0.75, "line": {"width": 0}},
        )
    centres = [row for row in rows if row["position"] < 0]
    if centres:
        figure.add_scatter(
            x=[row["x"] for row in centres],
            y=[row["y"] for row in centres],
            mode="markers+text",
            showlegend=False,
            text=[f"<b>{group_label(-row['position'] - 1)}</b>" for row in centres],
            textposition="middle center",
            hovertemplate="centroid %{text}<extra></extra>",
            textfont={"size": preset.points(preset.small), "color": style.INK},
            marker=style.mark(preset, style.INK, "circle", 10, fill="#ffffff", edge=0.8),
        )
    first = rows[0]
    trust = first["trustworthiness"]
    quality = "too few tokens for a trustworthiness"
    if trust is not None:
        quality = f"trustworthiness {trust:.2f} on at most 2,000 tokens, 10 neighbours"
    whole = json.loads(first["parameters"]).get("of", len(tokens))
    shown = counted(len(tokens), "token") if whole == len(tokens) else f"{len(tokens):,} of {counted(whole, 'token')}"
    caption = (
        f"{first['method']} of the routing vectors of {shown} in layer {layer} (cosine, seed "
        f"{first['seed']}, {quality}). Each point is a token, shape and colour "
        "are its most probable group, circled letters are centroids. Axes have no unit."
    )
    return style.finish(
        figure,
        preset,
        title=f"Map of tokens in layer {layer}",
        caption=caption,
        height=1.3,
        corner=f"n = {shown}, layer {layer}" + (f", trustworthiness {trust:.2f}" if trust is not None else ""),
        xaxis=style.axis(preset, f"{first['method']} 1", **_span(rows, "x")),
        yaxis=style.axis(preset, f"{first['method']} 2", **_span(rows, "y"), scaleanchor="x", constrain="range"),
    )


def _span(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    values = np.array([row[name] for row in rows])
    room = 0.05 * (float(np.ptp(values)) or 1.0)
    return {"range": [float(values.min()) - room, float(values.max()) + room], "nticks": 6}


PANELS = (("purity", "Purity"), ("nmi", "Normalised mutual<br>information"))
SIDE_BY_SIDE = (([0.0, 0.41], [0.0, 1.0]), ([0.59, 1.0], [0.0, 1.0]))  # where they are across and upwards
ABOVE_EACH_OTHER = (([0.0, 1.0], [0.54, 1.0]), ([0.0, 1.0], [0.0, 0.46]))


def structure_figure(rows: list[dict[str, Any]], scheme: str, preset: style.Preset) -> go.Figure:
    """Purity and mutual information by layer in two panels, side by side where there is room, with interval bands."""
    figure = go.Figure()
    wide = preset.width_px > 1.7 * preset.height_px
    places = SIDE_BY_SIDE if wide else ABOVE_EACH_OTHER
    layout: dict[str, Any] = {}
    drawn: list[str] = []
    for number, (statistic, label) in enumerate(PANELS):
        shown = sorted((row for row in rows if row["statistic"] == statistic), key=lambda row: row["layer"])
        layers = [row["layer"] for row in shown]
        end = "" if number == 0 else str(number + 1)
        drawn = style.add_bands(figure, shown, layers, preset, legend=number == 0, xaxis=f"x{end}", yaxis=f"y{end}")
        across, up = places[number]
        below = wide or number == len(PANELS) - 1
        ends = [layers[0] - 0.5, layers[-1] + 0.5]
        layout[f"xaxis{end}"] = style.axis(
            preset, "Layer" if below else "", range=ends, domain=across, anchor=f"y{end}", showticklabels=below
        )
        layout[f"yaxis{end}"] = style.axis(preset, label, rangemode="tozero", domain=up, anchor=f"x{end}", nticks=6)
    of_purity = [row for row in rows if row["statistic"] == PANELS[0][0]]
    first = of_purity[0]
    baselines = ", ".join(name for name in drawn if name != "Focus")
    caption = (
        f"Purity and normalised mutual information of groups and {NAMES.get(scheme, scheme)} by layer, of "
        f"{first['count']:,} {first['denominator']}, {style.interval_words(of_purity)}, beside {baselines}. "
        "The band of shuffled groups is the range of 95 % of the draws."
    )
    return style.finish(
        figure,
        preset,
        title=f"Groups and {NAMES.get(scheme, scheme)} by layer",
        caption=caption,
        height=1.0 if wide else 1.5,
        corner=f"n = {counted(first['count'], 'token')}, {counted(first['units'], first['unit'])}",
        **layout,
    )


MOST = 14  # categories; the rest are added up
NAMES = {"pos": "parts of speech", "dep": "syntactic relations", "word": "word classes"}
REST = "others"


def categories_figure(rows: list[dict[str, Any]], scheme: str, layer: int, preset: style.Preset) -> go.Figure:
    """Share of each group's tokens in each category; the column at the left is the whole text."""
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
    bar = style.colour_bar(preset, "Share of tokens", tickformat=".0%")
    style.add_cells(
        figure, columns, lines, values, limits=(0.0, top), bar=bar, hover="%{marker.color:.1%}<extra></extra>"
    )
    small = max(preset.points(6), preset.points(preset.small) * 0.9)
    texts, dark = [f"{100 * value:.0f}" for value in values], [value > 0.5 * top for value in values]
    style.add_numbers(figure, columns, lines, texts, dark, small)
    figure.add_vline(x=0.625, line=style.rule(preset))
    sizes = {row["group"]: row["group_tokens"] for row in rows}
    total = sum(sizes.values())
    caption = (
        f"{NAMES.get(scheme, scheme).capitalize()} of the tokens of every group in layer {layer}, in per cent of the "
        f"group's tokens, beside the whole text ({counted(total, 'token')}). Sizes: "
        + ", ".join(f"{group} {sizes[group]:,}" for group in groups)
        + "."
    )
    return style.finish(
        figure,
        preset,
        title=f"{NAMES.get(scheme, scheme).capitalize()} by group, layer {layer}",
        caption=caption,
        corner=f"n = {counted(total, 'token')}, layer {layer}, % of each group",
        height=0.55 + 0.055 * len(labels),
        xaxis=style.axis(
            preset,
            "Group",
            tickvals=[0, *(place + 1.25 for place in range(len(groups)))],
            ticktext=["text", *groups],
            range=[-0.5, len(groups) + 0.75],
            ticks="",
        ),
        yaxis=style.axis(
            preset, "", tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.5, -0.5], ticks=""
        ),
    )


def agreement_figure(rows: list[dict[str, Any]], preset: style.Preset) -> go.Figure:
    """Adjusted Rand index of every two layers; the diagonal, which is 1, is left out."""
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
    bar = style.colour_bar(preset, "Adjusted Rand index")
    style.add_cells(
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
        f"sorting, 0 is chance. Neighbouring layers {min(neighbours):.2f} to {max(neighbours):.2f}. "
        f"{_widest_words(rows)}; shuffled groups reach at most {shuffled_high:.3f}."
    )
    ends = [layers[0] - 0.5, place[layers[-1]] + 0.5]
    shown = range(0, len(layers), -(-len(layers) // 8))
    ticks: dict[str, Any] = {"nticks": 8}
    if place[layers[-1]] != layers[-1]:  # some layers have no groups: their numbers are not the places
        ticks = {"tickvals": [place[layers[i]] for i in shown], "ticktext": [str(layers[i]) for i in shown]}
    return style.finish(
        figure,
        preset,
        title="Agreement of layers",
        caption=caption,
        height=1.25,
        corner=f"n = {counted(count, 'token')}, {counted(len(layers), 'layer')}",
        xaxis=style.axis(preset, "Layer", range=ends, constrain="domain", **ticks),
        yaxis=style.axis(preset, "Layer", range=ends, scaleanchor="x", constrain="domain", **ticks),
    )


def _widest_words(rows: list[dict[str, Any]]) -> str:
    """How wide the intervals are; fewer than two units give none."""
    widths = [row["high"] - row["low"] for row in rows if row["low"] is not None]
    units = counted(rows[0]["units"], rows[0]["unit"])
    return (
        f"95 % intervals over {units} are at most ±{max(widths) / 2:.3f} wide" if widths else f"No interval ({units})"
    )
