"""Figures of reports."""

from __future__ import annotations

from focus_explorer.reproduce.figure import report_figure
from focus_explorer.reproduce.report import Figure, Series
from tests.explorer.reproduce.test_render import report


def test_a_figure_has_its_intervals_and_marks():
    figure = Figure("line", "x", "y", [Series("a", [1, 2], [3.0, 4.0], [2.0, 3.0], [4.0, 6.0])], marks={"full": 3.5})
    drawn = report_figure(report(figure=figure))
    assert list(drawn.data[0].error_y.array) == [1.0, 2.0]
    assert list(drawn.data[0].error_y.arrayminus) == [1.0, 1.0]
    assert drawn.layout.shapes[0].y0 == 3.5
