"""Table 10: sparse attentions that select keys for every query and train nothing, compared with Focus."""

from paper.lab import answers, shared
from paper.lab.answers import beyond_window
from paper.lab.lab import Lab
from paper.lab.shared import value_of
from paper.output.report import Claim, Report, Row
from paper.reported import REPORTED
from paper.verdicts import judge, lies_below


def table10(lab: Lab) -> Report:
    full = {**shared.full_row(lab), **shared.of_paper(REPORTED["retrofit"]["full attention"])}
    rows = [full, *shared.selecting_rows(lab), *shared.own_rows(lab)]
    return Report(
        [shared.METHOD, *shared.QUALITY, shared.KEYS, *answers.LAST_WORD_COLUMNS, shared.PAPER_PPL, *answers.OF_PAPER],
        rows,
        lab.setting(
            seeds=lab.scale.seeds,
            steps={"centroids": lab.scale.steps},
            passages_longer_than_the_window=beyond_window(full),
        )
        | {"keys a query (SparQ, MagicPIG)": shared.selecting_setting(lab)},
        [answers.ITEMS_NOTE, "Focus trains its centroids; the other methods train nothing."],
        _claims(rows),
        shared.perplexity_bars(rows),
    )


def _claims(rows: list[Row]) -> list[Claim]:
    by = {row["method"]: row for row in rows}
    soft, one, sparq, mean_value, magicpig = (
        by[name] for name in ("Focus, soft gate", "Focus K=8, k=1", "SparQ", "SparQ, mean value", "MagicPIG")
    )
    best = min((sparq, mean_value, magicpig), key=value_of)
    return [
        judge(
            "table10 rivals",
            lies_below(soft["relative"], best["relative"]),
            f"soft gate {value_of(soft):.2f}, which computes every pair; K = 8, k = 1 {value_of(one):.2f} at "
            f"{value_of(one, 'retained'):.0%} of pairs; best of the others {best['method']} {value_of(best):.2f} at "
            f"{value_of(best, 'retained'):.0%}; a query reads {sparq['keys']:.1f} keys under SparQ and "
            f"{magicpig['keys']:.1f} under MagicPIG on average",
        ),
        judge(
            "table10 mean value",
            lies_below(mean_value["relative"], sparq["relative"]),
            f"{value_of(mean_value):.2f} with, {value_of(sparq):.2f} without",
        ),
    ]
