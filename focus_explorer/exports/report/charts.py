"""Small charts as SVG inside the page: they follow its colours, light, dark and printed, and need nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 340, 196
LEFT, RIGHT, TOP, BOTTOM = 40, 16, 10, 34


class Chart:
    """An SVG with axes; x and y are given in data units, at first by the ends of both axes."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], label: str, height: int = HEIGHT) -> None:
        self.ends, self.height, self.label = (x, y), height, label
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.ends[0]
        return LEFT + (value - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        low, high = self.ends[1]
        return self.height - BOTTOM - (value - low) / ((high - low) or 1) * (self.height - TOP - BOTTOM)

    def x_axis(self, ticks: Sequence[tuple[float, str]], title: str) -> None:
        base = self.height - BOTTOM
        self.parts.append(f'<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>')
        for value, text in ticks:
            self.text(self.x(value), base + 13, text, "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, self.height - 4, title, "middle", "title")

    def y_axis(self, ticks: Sequence[tuple[float, str]]) -> None:
        """Ticks at the left with lines across."""
        for value, text in ticks:
            height = self.y(value)
            self.parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
            self.text(LEFT - 5, height + 3.5, text, "end")

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> None:
        """Words at a place in pixels, `y` that of their baseline."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>')

    def line(self, points: Sequence[tuple[float, float | None]], kind: str) -> None:
        """A line through points; it breaks where there is no value."""
        path, pen = "", "M"
        for x, y in points:
            if y is None:
                pen = "M"
                continue
            path += f"{pen}{self.x(x):.1f} {self.y(y):.1f}"
            pen = "L"
        self.parts.append(f'<path class="line {kind}" d="{path}"/>')

    def ribbon(self, points: Sequence[tuple[float, float, float]], kind: str) -> None:
        if points:
            above = "L".join(f"{self.x(x):.1f} {self.y(high):.1f}" for x, _, high in points)
            below = "L".join(f"{self.x(x):.1f} {self.y(low):.1f}" for x, low, _ in reversed(points))
            self.parts.append(f'<path class="area {kind}" d="M{above}L{below}Z"/>')

    def bar(self, x: tuple[float, float], y: tuple[float, float], kind: str) -> None:
        left, right, top, base = self.x(x[0]), self.x(x[1]), self.y(y[1]), self.y(y[0])
        self.parts.append(
            f'<rect class="area {kind}" x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" '
            f'height="{max(0.0, base - top):.2f}"/>'
        )

    def dot(self, x: float, y: float, kind: str, radius: float = 2.6) -> None:
        self.parts.append(f'<circle class="dot {kind}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}"/>')

    def svg(self) -> str:
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self.label)}">'
            + "".join(self.parts)
            + "</svg>"
        )


def steps(high: float) -> list[float]:
    """Round values from 0 up to at least `high`, four or so."""
    if high <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if high / (size * factor) <= 4.5)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def by_layer(rows: Sequence[dict[str, Any]], label: str) -> str:
    """A statistic of every layer with its interval, with random centroids and shuffled groups."""
    layers = [row["layer"] for row in rows]
    seen = [value for row in rows for value in (row["high"], row["random_high"], row["value"]) if value is not None]
    highest = max(seen, default=0.0)
    ticks = steps(highest)
    chart = Chart((layers[0] - 0.5, layers[-1] + 0.5), (0, ticks[-1]), label)
    chart.y_axis([(tick, f"{tick:g}") for tick in ticks])
    chart.x_axis([(layer, str(layer)) for layer in _some(layers)], "layer")
    for kind in ("shuffled", "random"):
        bounds = [(r["layer"], r[f"{kind}_low"], r[f"{kind}_high"]) for r in rows if r[f"{kind}_low"] is not None]
        chart.ribbon(bounds, kind)
        chart.line([(row["layer"], row[kind]) for row in rows], kind)
    chart.ribbon([(row["layer"], row["low"], row["high"]) for row in rows if row["low"] is not None], "focus")
    chart.line([(row["layer"], row["value"]) for row in rows], "focus")
    return chart.svg()


def causes(rows: Sequence[dict[str, Any]], names: Sequence[str], label: str) -> str:
    """Shares of every layer's causal pairs, the columns `names` stacked from the bottom."""
    layers = [row["layer"] for row in rows]
    chart = Chart((-0.5, len(rows) - 0.5), (0, 1), label)
    chart.y_axis([(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)])
    shown = set(_some(layers))
    chart.x_axis([(place, str(layer)) for place, layer in enumerate(layers) if layer in shown], "layer")
    for place, row in enumerate(rows):
        reached = 0.0
        for name in names:
            share = row[name] / row["causal_pairs"]
            chart.bar((place - 0.42, place + 0.42), (reached, reached + share), name)
            reached += share
    return chart.svg()


def distances(rows: Sequence[dict[str, Any]], label: str) -> str:
    """Share of pairs kept by distance, with its interval and baselines."""
    chart = Chart((0, len(rows) - 1), (0, 1), label)
    chart.y_axis([(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)])
    places = _some(list(range(len(rows))), 6)
    chart.x_axis([(place, f"{rows[place]['first']:,}") for place in places], "distance in tokens, from")
    for kind in ("window_only", "shuffled", "random"):
        chart.line([(place, row[kind]) for place, row in enumerate(rows)], kind)
    bounds = [(place, row["low"], row["high"]) for place, row in enumerate(rows) if row["low"] is not None]
    chart.ribbon(bounds, "focus")
    chart.line([(place, row["share"]) for place, row in enumerate(rows)], "focus")
    return chart.svg()


def repeats(stages: Sequence[tuple[str, dict[str, list[float]]]], label: str) -> str:
    """Every timed repeat as a dot, full attention above Focus, by stage."""
    highest = max(value for _, modes in stages for values in modes.values() for value in values)
    ticks = steps(highest)
    height = TOP + BOTTOM + 58 * len(stages)
    chart = Chart((0, ticks[-1]), (0, len(stages)), label, height)
    base = height - BOTTOM
    for tick in ticks:
        chart.parts.append(f'<path class="grid" d="M{chart.x(tick):.1f} {TOP}V{base}"/>')
    chart.x_axis([(tick, f"{tick:,g}") for tick in ticks], "milliseconds")
    for place, (name, modes) in enumerate(stages):
        top = len(stages) - place
        chart.text(LEFT, chart.y(top) + 11, name, "start", "title")
        for offset, mode in ((0.45, "full"), (0.75, "focus")):
            for value in modes.get(mode, []):
                chart.dot(value, top - offset, mode, 3.2)
    return chart.svg()


def _some(values: Sequence[int], most: int = 7) -> list[int]:
    step = max(1, -(-len(values) // most))
    return list(values[::step])
