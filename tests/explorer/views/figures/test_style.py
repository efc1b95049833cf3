"""Sizes and type of printed figures, and colours that differ in grey."""

from __future__ import annotations

import itertools
import re

import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.exports.figures.write import PRESETS
from focus_explorer.views.figures import style
from focus_explorer.views.figures.groups import group_sizes_figure
from focus_explorer.views.figures.pairs import CAUSES


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
