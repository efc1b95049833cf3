"""Table 1: Focus compared with other sparse attentions, frozen and fine-tuned: perplexity and answers."""

from paper.lab import answers, shared
from paper.lab.answers import beyond_window, both_accuracies
from paper.lab.lab import Lab
from paper.lab.scale import Scale
from paper.lab.shared import value_of
from paper.output.report import Claim, Report, Row
from paper.reported import REPORTED
from paper.verdicts import ALIKE_PAIRS, judge, lies_below


def table1(lab: Lab) -> Report:
    scale, sparse = lab.scale, shared.sparse_methods(lab)
    rows = [{**shared.full_row(lab), **shared.of_paper(REPORTED["retrofit"]["full attention"])}, *shared.null_rows(lab)]
    rows += [shared.frozen_row(lab, f"{name}, frozen", method) for name, method in sparse]
    rows += shared.selecting_rows(lab)
    rows += [shared.tuned_row(lab, name, method) for name, method in sparse]
    rows += [shared.tuned_row(lab, "full fine-tuning", None), *shared.own_rows(lab)]
    return Report(
        [
            shared.METHOD,
            shared.TRAINED,
            *shared.QUALITY,
            shared.KEYS,
            *answers.LAST_WORD_COLUMNS,
            shared.PAPER_PPL,
            *answers.OF_PAPER,
        ],
        rows,
        lab.setting(
            seeds=scale.seeds,
            steps={"centroids": scale.steps, "weights": scale.weight_steps},
            learning_rates={"centroids": scale.learning_rate, "weights": scale.weight_rate},
            passages_longer_than_the_window=beyond_window(rows[0]),
        )
        | {"keys a query (SparQ, MagicPIG)": shared.selecting_setting(lab)},
        [
            answers.ITEMS_NOTE,
            "The paper's rows for other methods are of fine-tuned weights; here every method is also shown on the "
            "frozen model.",
            answers.BENCHMARKS_NOTE,
            "Fine-tuning rows are of one seed, scored in fp32 and compared with full attention in fp32.",
        ],
        _claims(rows, scale),
        shared.perplexity_bars(rows),
    )


def _claims(rows: list[Row], scale: Scale) -> list[Claim]:
    by = {row["method"]: row for row in rows}
    base, soft, tuned = by["full attention"], by["Focus, soft gate"], by["full fine-tuning"]
    one, two = by["Focus K=4, k=1"], by["Focus K=4, k=2"]
    ahead = lies_below(soft["relative"], tuned["relative"]) if scale.steps == scale.weight_steps else None
    return [
        judge("table1 gain", soft["relative"], f"soft gate; under the mask at k = 2 {two['relative'].value:+.2%}"),
        _against_rivals(rows, two),
        _against_rivals(rows, by["Focus K=8, k=1"]),
        judge(
            "table1 fine-tuning",
            ahead,
            f"soft gate {value_of(soft):.2f} after {scale.steps} steps, full fine-tuning "
            f"{value_of(tuned):.2f} after {scale.weight_steps}",
        ),
        judge(
            "table1 answers",
            two["unharmed"],
            "last word within the window, where every mask is full attention, and in long passages: full attention "
            f"{both_accuracies(base)}, k = 2 {both_accuracies(two)}, k = 1 "
            f"{both_accuracies(one)}; beyond the window: {beyond_window(base)}",
            items=scale.task_items,
        ),
    ]


def _against_rivals(rows: list[Row], focus: Row) -> Claim:
    """Focus compared with the best other method that leaves out pairs and keeps about as many as it does.

    A method that keeps fewer may do worse for that reason alone; Performer leaves out none, it approximates all.
    """
    kept = value_of(focus, "retained")
    others = [row for row in rows if "frozen" in row["method"] or row["method"].startswith(("SparQ", "MagicPIG"))]
    others.sort(key=value_of)
    rivals = [row for row in others if abs(value_of(row, "retained") - kept) <= ALIKE_PAIRS]
    listed = ", ".join(f"{row['method']} {value_of(row):.2f} at {value_of(row, 'retained'):.0%}" for row in others)
    evidence = f"{focus['method']} {value_of(focus):.2f} at {kept:.0%} of pairs; {listed}"
    verdict = lies_below(focus["relative"], rivals[0]["relative"]) if rivals else None
    if verdict is None:
        evidence += f"; intervals overlap with {rivals[0]['method']}" if rivals else "; none keeps as many pairs"
    return judge("table1 rivals", verdict, evidence, focus=focus["method"])
