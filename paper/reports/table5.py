"""Table 5: weights trained with Focus compared with the same training with full attention."""

from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.twins import GROUPS, SCRATCH_RATE, from_scratch, twin_claims, twins, two_phase, word_frequencies
from paper.output.report import Column, Report
from paper.reported import REPORTED


def table5(lab: Lab) -> Report:
    scale = lab.scale
    tuned = two_phase(lab, "fine-tuned in two phases", reported=REPORTED["fine_tuned"][0])
    rows, _ = twins(lab, tuned, lab.seed)
    scratch = from_scratch(lab, scale.scratch_steps)
    for seed in scale.seeds:
        rows += twins(lab, scratch, seed)[0]
    return Report(
        [
            Column("method", "training"),
            Column("attention", "attention"),
            Column("seed", "seed", 0),
            *shared.QUALITY,
            Column("loss", "last training loss", 3),
            Column("paper_full", "full (124M; 7B)", 2, paper=True),
            Column("paper_focus", "Focus (124M; 7B)", 2, paper=True),
        ],
        rows,
        lab.setting(
            groups=GROUPS,
            steps={"centroids": scale.steps, "weights": scale.weight_steps, "from scratch": scale.scratch_steps},
            learning_rates={"weights": scale.weight_rate, "from scratch": SCRATCH_RATE},
            seeds=scale.seeds,
        ),
        [
            "Evaluation is under the hard mask; the paper's soft gate keeps every pair.",
            "p and the difference compare with the twin on the same sequences.",
        ],
        twin_claims(rows, word_frequencies(lab)),
    )
