"""Table 10: sparse attentions that select keys for every query and train nothing, compared with Focus."""

from __future__ import annotations

from typing import Any

from paper.reports.adaptation import (
    APART,
    KEYS,
    beyond_window,
    full_row,
    lies_below,
    own_rows,
    perplexity_bars,
    selected_keys,
    selecting_rows,
    selecting_setting,
    value_of,
)
from paper.reports.answers import ITEMS_NOTE, OF_PAPER, answer_columns
from paper.reports.lab import Lab
from paper.reports.quality import QUALITY
from paper.reports.report import Claim, Column, Report


def table10(lab: Lab) -> Report:
    """Sparse attentions that train nothing of the model; rows of table 1 where that was measured."""
    measured = lab.reports.get("table1")
    if measured is None:
        return _table10(lab, [full_row(lab), *selecting_rows(lab, selected_keys(lab)), *own_rows(lab)])
    lab.lines += measured.log
    methods = ("full attention", "SparQ", "MagicPIG", "Focus")
    return _table10(lab, [row for row in measured.rows if row["method"].startswith(methods)])


def _table10(lab: Lab, rows: list[dict[str, Any]]) -> Report:
    """The report of measured rows."""
    scale = lab.scale
    by = {row["method"]: row for row in rows}
    one = by["Focus K=8, k=1"]
    rivals = [by[name] for name in ("SparQ", "SparQ, mean value", "MagicPIG")]
    best = min(rivals, key=value_of)
    claims = [
        Claim(
            "Focus under the soft gate is ahead of SparQ and MagicPIG (36.2 against 48.3 to 52.8)",
            lies_below(by["Focus, soft gate"]["relative"], best["relative"]),
            f"soft gate {value_of(by['Focus, soft gate']):.2f}, which computes every pair; K = 8, k = 1 "
            f"{value_of(one):.2f} at {value_of(one, 'retained'):.0%} of pairs; best of the others {best['method']} "
            f"{value_of(best):.2f} at {value_of(best, 'retained'):.0%}; {_keys_read(by)}",
            APART,
        ),
        Claim(
            "reallocating the mean value helps SparQ (48.3 against 52.8)",
            lies_below(by["SparQ, mean value"]["relative"], by["SparQ"]["relative"]),
            f"{value_of(by['SparQ, mean value']):.2f} with, {value_of(by['SparQ']):.2f} without",
            APART,
        ),
    ]
    return Report(
        "table10",
        "Sparse attentions that train nothing of the model",
        [
            Column("method", "method"),
            *QUALITY,
            KEYS,
            *answer_columns(lab),
            Column("paper_ppl", "perplexity (GPT-2, PG-19)", 1, paper=True),
            *OF_PAPER,
        ],
        rows,
        {
            **lab.base_setting(),
            "keys a query (SparQ, MagicPIG)": selecting_setting(selected_keys(lab)),
            "seeds": scale.seeds,
            "steps": {"centroids": scale.steps},
            "passages longer than the window": beyond_window(rows),
        },
        [ITEMS_NOTE, "Focus trains its centroids; the other methods train nothing."],
        claims,
        perplexity_bars(rows),
    )


def _keys_read(by: dict[str, dict[str, Any]]) -> str:
    """Keys a query of both methods, in words."""
    sparq, magicpig = (value_of(by[name], KEYS.key) for name in ("SparQ", "MagicPIG"))
    return f"a query reads {sparq:.1f} keys under SparQ and {magicpig:.1f} under MagicPIG on average"
