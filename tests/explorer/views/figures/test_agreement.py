"""The figure of agreeing layers, also where layers without groups lie between."""

from __future__ import annotations

from itertools import combinations

import pytest

from focus_explorer.views.figures.groups import agreement_figure
from focus_explorer.views.figures.style import PRESETS


def table(layers):
    fixed = {"count": 300, "units": 12, "unit": "sentence", "shuffled_high": 0.02}
    return [
        fixed | {"layer": a, "other_layer": b, "adjusted_rand": v, "low": v - 0.05, "high": v + 0.05}
        for v, (a, b) in zip((0.3, 0.1, 0.2), combinations(layers, 2), strict=False)
    ]


@pytest.mark.parametrize("layers", [(0, 1, 2), (5, 11, 17)])
def test_neighbours_are_layers_with_groups(layers):
    figure = agreement_figure(table(layers), PRESETS["column"])
    assert "Neighbouring layers 0.20 to 0.30" in figure.layout.meta["caption"]
    cells = figure.data[0]
    named = sorted((int(a), int(b)) for a, b in cells.customdata)
    assert named == sorted((a, b) for a in layers for b in layers if a != b)
    assert {round(x) for x in cells.x} == {layers[0], layers[0] + 1, layers[0] + 2}


def test_the_axis_names_layers_not_places():
    assert agreement_figure(table((0, 1, 2)), PRESETS["column"]).layout.xaxis.ticktext is None
    assert agreement_figure(table((5, 11, 17)), PRESETS["column"]).layout.xaxis.ticktext == ("5", "11", "17")


def test_two_layers_are_enough():
    assert "0.30 to 0.30" in agreement_figure(table((5, 17)), PRESETS["column"]).layout.meta["caption"]


def test_one_sentence_has_no_interval():
    rows = [row | {"units": 1, "low": None, "high": None} for row in table((0, 1, 2))]
    caption = agreement_figure(rows, PRESETS["column"]).layout.meta["caption"]
    assert "No interval (1 sentence); shuffled groups reach at most 0.020." in caption
    assert "95 %" not in caption
    assert (
        "over 12 sentences are at most ±0.050"
        in agreement_figure(table((0, 1, 2)), PRESETS["column"]).layout.meta["caption"]
    )
