"""gsm8k: answers by writing after eight examples, to generated problems of GSM8K's form."""

from focus_runtime.measure.perplexity import score
from paper.lab import shared
from paper.lab.answers import Tasks
from paper.lab.lab import Lab, composed
from paper.lab.shared import quality_cells
from paper.output.report import Column, Report, Row
from paper.reported import REPORTED
from paper.tasks.word_problems import TASK, YAML, word_problems
from paper.verdicts import judge

FLOOR = 0.05  # share of right answers below which no loss can show


def gsm8k(lab: Lab) -> Report:
    answers = Tasks.local(lab, TASK, lambda: word_problems(lab.scale.task_items), YAML, "exact_match")
    base: Row = {"method": "full attention", "retained": 1.0, **answers.cells(lab.model)}
    rows: list[Row] = [base | {"paper_accuracy": REPORTED["gsm8k"]["full"]}]
    trained = lab.trained(num_groups=4)
    for top_k in (2, 1):
        with composed(lab.model, trained, top_k=top_k, assignment="causal") as focus:
            kept = quality_cells(lab.full(), score(focus, lab.sequences()))
            row = {"method": f"Focus K=4, k={top_k}", **answers.cells(focus)}
        row |= {"retained": kept["retained"], "dominance": kept["dominance"]}
        rows.append(row | {"paper_accuracy": REPORTED["gsm8k"]["focus"] if top_k == 2 else None})
    two = rows[1]
    floor = base["accuracy"].value < FLOOR
    evidence = f"{base['accuracy'].value:.1%} with full attention, {two['accuracy'].value:.1%} at k = 2"
    evidence += f"; below {FLOOR:.0%} there is nothing that could be lost" if floor else ""
    return Report(
        [
            shared.METHOD,
            Column("accuracy", "right answers", 1, percent=True),
            Column("accuracy_p", "p", 4),
            Column("retained", "pairs kept, held-out text", 1, percent=True),
            shared.DOMINANCE,
            Column("paper_accuracy", "GSM8K (Mistral 7B)", 1, paper=True, percent=True),
        ],
        rows,
        lab.setting(assignment_in_use="causal: tokens are written one by one") | answers.setting(),
        [
            "A local task stands in for GSM8K, which `focus-explorer evaluate` runs where the hub can be reached. It "
            "has its form (eight solved examples, steps, a number after ####, exact comparison) and a few sentence "
            "patterns in place of its content."
        ],
        [judge("gsm8k", None if floor else two["unharmed"], evidence, items=answers.items)],
    )
