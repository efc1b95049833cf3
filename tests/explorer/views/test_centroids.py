"""The validation report of a centroid file."""

from __future__ import annotations

from focus_explorer.views.training import report_html


def test_reports_escape_what_users_wrote():
    html = report_html("<script>", ["<script>"])
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 2
