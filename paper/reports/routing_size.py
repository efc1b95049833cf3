"""routing-size: what the size of the routing space changes."""

from paper.lab.lab import Lab
from paper.lab.shared import relative
from paper.output.report import Column, Figure, Report, Series
from paper.reported import REPORTED
from paper.reports.table9 import SCORES, SWEEP, count, sweep_setting, trained_row
from paper.verdicts import judge

GROUPS = 4  # as in the paper


def routing_size(lab: Lab) -> Report:
    rows = []
    for size, values in REPORTED["routing_dim"].items():
        row = trained_row(lab, f"d_g = {size}", num_groups=GROUPS, routing_dim=size)
        rows.append(row | {"paper_ppl": values["ppl"], "paper_parameters": values["parameters"]})
    sizes, scored = list(REPORTED["routing_dim"]), [row.pop(SCORES) for row in rows]
    gaps = [relative(scores, scored[0]) for scores in scored[1:]]
    full = lab.full(count=count(lab)).perplexity
    return Report(
        [
            SWEEP[0],
            Column("parameters", "weights trained", 0),
            *SWEEP[1:],
            Column("paper_parameters", "weights trained (GPT-2)", 0, paper=True),
            Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
        ],
        rows,
        sweep_setting(lab) | {"groups": GROUPS},
        [f"Full attention: {full:.2f}."],
        [
            judge(
                "routing-size same",
                gaps[:2],
                "k = 1, d_g = 32 and 128 against 16 in pairs: " + ", ".join(f"{gap.value:+.2%}" for gap in gaps[:2]),
            ),
            judge("routing-size worse", gaps[2], "k = 1, against d_g = 16 in pairs"),
        ],
        Figure(
            "line",
            "routing size",
            "perplexity, k = 1",
            [Series("Focus K=4, k=1", sizes, [row["ppl"].value for row in rows])],
            log_x=True,
            marks={"full attention": full},
        ),
    )
