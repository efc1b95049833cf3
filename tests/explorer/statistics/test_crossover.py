"""The length at which Focus overtakes full attention."""

from __future__ import annotations

import pytest

from focus_explorer.usecases.compare.lengths import crossing


def point(tokens, full, focus, routing=1.0):
    values = {"full": full, "focus": focus}
    spread = {f"{m}_{end}": v for m, v in values.items() for end in ("median", "low", "high")}
    return {"tokens": tokens, "routing_median": routing, **spread}


def test_crossing_lies_where_the_times_are_equal():
    # full = n^2 / 4096 and Focus with routing = n / 2 meet at 2,048; measured on both sides of it
    points = [point(n, n * n / 4096, n / 2 - 1) for n in (512, 1024, 4096, 8192)]
    crossover = crossing(points[::-1])
    assert (crossover.kind, crossover.below, crossover.above) == ("interpolated", 1024, 4096)
    assert crossover.tokens == pytest.approx(2048)


def test_crossing_claims_nothing_beyond_what_was_measured():
    assert crossing([]) is None
    assert crossing([point(256, 1, 5), point(512, 4, 6)]).kind == "never"
    assert crossing([point(256, 10, 5), point(512, 40, 6)]).kind == "from the start"
    assert crossing([point(256, 10, 5), point(512, 4, 6)]).kind == "mixed"
    dip = [point(256, 10, 5), point(512, 5, 6), point(1024, 30, 6)]  # faster, slower, faster: only the last counts
    assert crossing(dip).below == 512
    assert not crossing([point(256, 5, 4.5) | {"full_low": 4, "full_high": 6, "focus_high": 6}]).clear
