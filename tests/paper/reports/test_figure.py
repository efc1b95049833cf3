"""Figures of reports."""

from __future__ import annotations

from paper.reports.figure import report_figure
from paper.reports.report import Figure, Series
from tests.paper.reports.test_render import report


def test_a_figure_has_its_intervals_and_marks():
    figure = Figure("line", "x", "y", [Series("a", [1, 2], [3.0, 4.0], [2.0, 3.0], [4.0, 6.0])], marks={"full": 3.5})
    drawn = report_figure(report(figure=figure))
    assert list(drawn.data[0].error_y.array) == [1.0, 2.0]
    assert list(drawn.data[0].error_y.arrayminus) == [1.0, 1.0]
    assert drawn.layout.shapes[0].y0 == 3.5
