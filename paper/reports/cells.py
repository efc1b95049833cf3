"""Cells of a row: perplexity beside full attention's on the same sequences, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from focus_runtime.measure.intervals import Interval, mean_interval
from focus_runtime.measure.perplexity import Scores, compare


def quality_cells(full: Scores, runs: Scores | Sequence[Scores]) -> dict[str, Any]:
    """Cells of a row under Focus: perplexity and difference with intervals, with balance and pairs kept."""
    compared = compare(full, runs)
    difference = compared["relative_difference"]
    return {
        "ppl": _interval(compared["focus_perplexity"]),
        "relative": _interval(difference),
        "p": compared["p_value"],
        "dominance": compared["dominance"],
        "dominance_max": compared["highest_dominance"],
        "retained": compared["retained_pairs"],
        "distant": compared["distant_kept"],
        "seeds": compared["seeds"],
    }


def relative(one: Scores, other: Scores) -> Interval:
    """Difference of the perplexity of `one` from that of `other` on the same sequences, as a share of it."""
    return mean_interval(one.nll - other.nll, other.scored).through(math.expm1)


def _interval(values: dict[str, float | None]) -> Interval:
    value = values["value"]
    assert value is not None
    return Interval(value, values["low"], values["high"], 0)


def plain_cells(full: Scores, scores: Scores) -> dict[str, Any]:
    """Cells of a row without groups: perplexity and the paired difference to full attention."""
    difference = mean_interval(scores.nll - full.nll, full.scored)
    return {
        "ppl": mean_interval(scores.nll, scores.scored).through(_exp),
        "relative": difference.through(_expm1),
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _expm1(value: float) -> float:
    return _exp(value) - 1.0
