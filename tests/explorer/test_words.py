"""One of a unit and many."""

from __future__ import annotations

from focus_explorer.words import counted


def test_one_is_one_and_many_are_many():
    assert [counted(count, "scored token") for count in (0, 1, 1200)] == [
        "0 scored tokens",
        "1 scored token",
        "1,200 scored tokens",
    ]
    assert (counted(1, "query", "queries"), counted(2, "query", "queries")) == ("1 query", "2 queries")
