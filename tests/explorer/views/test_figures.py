"""Printed figures: sizes, captions and what they draw."""

from __future__ import annotations

import itertools
import json
import re
from itertools import combinations

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.views.figures import style
from focus_explorer.views.figures.groups import agreement_figure, group_sizes_figure, structure_figure, token_map_figure
from focus_explorer.views.figures.pairs import CAUSES, distances_figure, mask_figure
from focus_explorer.views.figures.quality import loss_difference_figure
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
    places = None if layers == (0, 1, 2) else ("5", "11", "17")  # the axis names layers where these are no places
    assert figure.layout.xaxis.ticktext == places
    assert "0.30 to 0.30" in agreement_figure(table(layers[::2]), PRESETS["column"]).layout.meta["caption"]


def test_one_sentence_has_no_interval():
    rows = [row | {"units": 1, "low": None, "high": None} for row in table((0, 1, 2))]
    caption = agreement_figure(rows, PRESETS["column"]).layout.meta["caption"]
    assert "No interval (1 sentence); shuffled groups reach at most 0.020." in caption
    assert "95 %" not in caption
    assert (
        "over 12 sentences are at most ±0.050"
        in agreement_figure(table((0, 1, 2)), PRESETS["column"]).layout.meta["caption"]
    )


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


@pytest.mark.parametrize(("tokens", "window"), [(1, 1), (7, 7), (8, 8), (300, 8), (400, 10)])
def test_the_line_says_of_how_many_tokens_it_is_a_mean(tokens, window):
    differences = np.linspace(0, 1, tokens)
    figure = loss_difference_figure(np.arange(1, tokens + 1), differences, (0.5, 0.4, 0.6), PRESETS["column"])
    line = figure.data[1]
    words = f"mean of {window} token{'' if window == 1 else 's'}"
    assert line.name == words
    assert f"running {words}." in figure.layout.meta["caption"]
    assert line.y[0] == pytest.approx(differences[:window].mean())


def test_the_mask_adds_up(service, run_id):
    rows = fetch(service.database, "mask", run_id=run_id, layer=1, part=0)
    tokens = fetch(service.database, "tokens", run_id=run_id).num_rows
    drawn = mask_figure(rows, 1, tokens, PRESETS["column"])
    cells = drawn.data[0]
    colours = set(cells.marker.color)
    blocks = int(rows["row_block"].to_numpy().max()) + 1
    side = -(-blocks // 64)
    shown = -(-blocks // side)
    assert len(cells.x) == shown * (shown + 1) // 2
    assert len(colours) > 3
    assert all(abs(sum(shares) - 100) <= 3 for shares in cells.customdata)
    kept = sum(rows[name].to_numpy().sum() for name in CAUSES if name != "dropped") / (tokens * (tokens + 1) / 2)
    assert f"{kept:.1%} of the pairs are kept" in drawn.layout.meta["caption"]


def test_sizes_and_type_fit_every_preset(service, run_id):
    groups = fetch(service.database, "groups", run_id=run_id).to_pylist()
    for name, preset in PRESETS.items():
        assert preset.small >= 6, name
        drawn = group_sizes_figure(groups, preset)
        assert drawn.layout.width == pytest.approx(preset.width * 96 / 25.4, abs=0.5)
        sizes = [float(size) for size in re.findall(r'"font":\{[^{}]*"size":([\d.]+)', drawn.to_json())]
        assert len(sizes) >= 5
        assert min(sizes) >= 6 * 96 / 72 - 1e-6, name


def test_colours_differ_in_grey():
    def lightness(colour):
        red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    steps = [lightness(colour) for colour in style.SEQUENTIAL]
    assert all(one - other > 0.02 for one, other in itertools.pairwise(steps))
    causes = sorted(lightness(colour) for _, colour in CAUSES.values())
    assert all(other - one > 0.04 for one, other in itertools.pairwise(causes))
    marks = [tuple(style.group_mark(group).values()) for group in range(64)]
    assert len(set(marks)) == 64
    assert len({symbol for _, symbol in marks[:8]}) == 8
