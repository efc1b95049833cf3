"""from-scratch and figure3: a small model trained from random initialisation with Focus and with full attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paper.reports import paper
from paper.reports.lab import Lab
from paper.reports.quality import QUALITY
from paper.reports.report import Column, Figure, Report, Series
from paper.reports.stand_ins import SCRATCH_RATE, SMALL
from paper.reports.twins import GROUPS, from_scratch_plan, twin_claims, twins, word_frequencies

POINTS = 20  # of a curve, each the mean over the steps since the one before


def _from_scratch(lab: Lab) -> Report:
    """Twins trained long enough to use context, with their curves."""
    scale, seed = lab.scale, lab.scale.seeds[0]
    made = twins(lab, from_scratch_plan(lab, scale.curve_steps), seed)
    frequencies = word_frequencies(lab.train_ids.ids, lab.sequences(), len(lab.tokenizer))
    rows = [{**row, "steps": scale.curve_steps} for row in made.rows]
    rows[0]["paper_ppl"], rows[1]["paper_ppl"] = paper.FINE_TUNED[-1]["full"], paper.FINE_TUNED[-1]["focus"]
    return Report(
        "from-scratch",
        "A model trained from random initialisation with Focus and with full attention",
        [
            Column("attention", "attention"),
            Column("steps", "steps", 0),
            *QUALITY,
            Column("loss", "last training loss", 3),
            Column("paper_ppl", "perplexity (7B, 2B tokens)", 2, paper=True),
        ],
        rows,
        {
            **lab.base_setting(),
            "model": f"4 layers, width {SMALL['hidden_size']}, the vocabulary of {lab.model_name}",
            "groups": GROUPS,
            "steps": scale.curve_steps,
            "learning rate": SCRATCH_RATE,
            "seeds": [seed],
            "perplexity of token frequencies": round(frequencies, 1),
        },
        [
            "Perplexity is of held-out text under the hard mask; curves are of the training text, where Focus attends "
            "under its soft gate to every pair.",
            "p and the difference compare with the twin on the same sequences.",
        ],
        twin_claims(made.rows, frequencies),
        _curves(made.curves, frequencies),
        {"losses": made.curves},
    )


def _curves(curves: dict[str, list[float]], frequencies: float) -> Figure:
    series = []
    for key, name in (("full", "full attention"), ("focus", "Focus, soft gate")):
        parts = np.array_split(np.array(curves[key]), min(POINTS, len(curves[key])))
        ends = np.cumsum([part.size for part in parts]).tolist()
        series.append(Series(name, ends, [math.exp(float(part.mean())) for part in parts]))
    return Figure(
        "line", "step", "perplexity of the training text", series, log_y=True, marks={"token frequencies": frequencies}
    )


def from_scratch(lab: Lab) -> Report:
    """The table; measured once for it and `figure3`."""
    return lab.once("from-scratch", _from_scratch)


def figure3(lab: Lab) -> Report:
    """The curves of `from-scratch`."""
    report: Any = from_scratch(lab)
    report.name, report.title = "figure3", "Training curves from random initialisation, Focus and full attention"
    return report
