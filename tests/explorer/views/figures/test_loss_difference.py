"""The figure of loss differences: its line is named after the tokens it is a mean of."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.views.figures.quality import loss_difference_figure
from focus_explorer.views.figures.style import PRESETS


@pytest.mark.parametrize(("tokens", "window"), [(1, 1), (7, 7), (8, 8), (300, 8), (400, 10)])
def test_the_line_says_of_how_many_tokens_it_is_a_mean(tokens, window):
    differences = np.linspace(0, 1, tokens)
    figure = loss_difference_figure(np.arange(1, tokens + 1), differences, (0.5, 0.4, 0.6), PRESETS["column"])
    line = figure.data[1]
    words = f"mean of {window} token{'' if window == 1 else 's'}"
    assert line.name == words
    assert f"running {words}." in figure.layout.meta["caption"]
    assert line.y[0] == pytest.approx(differences[:window].mean())
