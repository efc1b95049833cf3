"""Figure 3 and from-scratch: a small model trained from random initialisation with Focus and with full attention."""

import math

import numpy as np

from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.twins import GROUPS, SCRATCH_RATE, WIDTH, from_scratch, twin_claims, twins, word_frequencies
from paper.output.report import Column, Figure, Report, Series
from paper.reported import REPORTED

POINTS = 20  # of a curve, each the mean over the steps since the one before


def figure3(lab: Lab) -> Report:
    steps = lab.scale.curve_steps
    trained, curves = twins(lab, from_scratch(lab, steps), lab.seed)
    frequencies = word_frequencies(lab)
    rows = [{**row, "steps": steps} for row in trained]
    rows[0]["paper_ppl"], rows[1]["paper_ppl"] = (REPORTED["fine_tuned"][-1][name] for name in ("full", "focus"))
    return Report(
        [
            Column("attention", "attention"),
            Column("steps", "steps", 0),
            *shared.QUALITY,
            Column("loss", "last training loss", 3),
            Column("paper_ppl", "perplexity (7B, 2B tokens)", 2, paper=True),
        ],
        rows,
        lab.setting(
            groups=GROUPS,
            steps=steps,
            learning_rate=SCRATCH_RATE,
            perplexity_of_token_frequencies=round(frequencies, 1),
        )
        | {"model": f"4 layers, width {WIDTH}, the vocabulary of {lab.model_name}"},
        [
            "Perplexity is of held-out text under the hard mask; curves are of the training text, where Focus attends "
            "under its soft gate to every pair.",
            "p and the difference compare with the twin on the same sequences.",
        ],
        twin_claims(trained, frequencies),
        _curves(curves, frequencies),
        {"losses": curves},
    )


def _curves(curves: dict[str, list[float]], frequencies: float) -> Figure:
    series = []
    for key, name in (("full", "full attention"), ("focus", "Focus, soft gate")):
        parts = np.array_split(np.array(curves[key]), min(POINTS, len(curves[key])))
        ends = np.cumsum([part.size for part in parts]).tolist()
        series.append(Series(name, ends, [math.exp(float(part.mean())) for part in parts]))
    marks = {"token frequencies": frequencies}
    return Figure("line", "step", "perplexity of the training text", series, log_y=True, marks=marks)
