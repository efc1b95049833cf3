"""Sentences about numbers claim no more than intervals and repeats allow."""

from __future__ import annotations

from focus_explorer.exports.report import numbers as report_words


def test_nothing_is_called_faster_while_repeats_overlap():
    def spread(low, median, high, repeats=3):
        return {"low": low, "median": median, "high": high, "repeats": repeats}

    assert "Focus is faster, 2.00 times" in report_words.speed("Pass", spread(9, 10, 11), spread(4, 5, 6))
    assert "Focus is slower" in report_words.speed("Pass", spread(4, 5, 6), spread(9, 10, 11))
    assert "neither is called faster" in report_words.speed("Pass", spread(5, 10, 11), spread(4, 5, 6))
    assert "says little" in report_words.speed("Pass", spread(10, 10, 10, 1), spread(5, 5, 5, 1))
    assert "worse" in report_words.loss({"low": 0.1, "high": 0.2})
    assert "zero" in report_words.loss({"low": -0.1, "high": 0.2})
