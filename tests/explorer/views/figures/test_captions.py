"""Captions of figures say what there is: no interval of one sentence, and of how many tokens a map shows some."""

from __future__ import annotations

import json

import pytest

from focus_explorer.views.figures.groups import structure_figure, token_map_figure
from focus_explorer.views.figures.pairs import distances_figure
from focus_explorer.views.figures.style import PRESETS

ENDS = {1: (None, None), 12: (0.1, 0.3)}
OVER = {1: "without intervals (1 sentence), beside ", 12: "with 95 % bootstrap intervals over 12 sentences, beside "}
PRESET = PRESETS["column"]


def words_of(figure):
    return figure.layout.meta["caption"], figure.layout.meta["corner"]


@pytest.mark.parametrize("units", [1, 12])
def test_statistics_by_layer_and_by_distance_say_what_intervals_are_over(units):
    low, high = ENDS[units]
    about = {"units": units, "unit": "sentence", "count": 163, "denominator": "tokens", "random": 0.1}
    rows = [
        about | {"statistic": name, "layer": layer, "value": 0.2, "low": low, "high": high}
        for name in ("purity", "nmi")
        for layer in (0, 1)
    ]
    caption, corner = words_of(structure_figure(rows, "pos", PRESET))
    assert f"of 163 tokens, {OVER[units]}random centroids." in caption
    assert corner == f"n = 163 tokens, {units} sentence{'s' if units > 1 else ''}"
    far = [about | {"first": 2**n, "last": 2**n, "share": 0.5, "pairs": 10, "low": low, "high": high} for n in (0, 1)]
    caption, _ = words_of(distances_figure(far, [8], 163, None, PRESET))
    assert f"mean over layers, {OVER[units]}random centroids." in caption


@pytest.mark.parametrize(
    ("trust", "of", "words"),
    [
        (0.93, 38, "of 38 tokens in layer 0 (cosine, seed 0, trustworthiness 0.93 on at most 2,000 tokens, 10"),
        (None, None, "of 38 tokens in layer 0 (cosine, seed 0, too few tokens for a trustworthiness). Each"),
        (0.93, 9213, "of 38 of 9,213 tokens in layer 0 (cosine, "),
    ],
)
def test_a_map_says_of_how_many_tokens_it_shows_some(trust, of, words):
    parameters = json.dumps({} if of is None else {"of": of})
    about = {"method": "UMAP", "seed": 0, "trustworthiness": trust, "parameters": parameters}
    points = [about | {"position": place - 2, "x": place % 7, "y": place / 3} for place in range(40)]
    caption, corner = words_of(token_map_figure(points, dict.fromkeys(range(38), 0), ["a"] * 38, 0, PRESET))
    assert words in caption
    assert corner.startswith(f"n = {words.split(' in layer')[0].removeprefix('of ')}, layer 0")
