"""Table 3: centroids compared with LoRA of as many parameters on the same data."""

from paper.lab import answers, shared
from paper.lab.answers import beyond_window, both_accuracies
from paper.lab.lab import Lab
from paper.lab.shared import value_of
from paper.output.report import Column, Report
from paper.reported import REPORTED
from paper.verdicts import judge, lies_below


def table3(lab: Lab) -> Report:
    scale = lab.scale
    base = shared.full_row(lab, "frozen model")
    lora, larger = (
        {**shared.lora_row(lab, rank), **shared.of_paper(REPORTED["adaptation"][f"LoRA r={rank}"])} for rank in (4, 16)
    )
    soft = {**shared.soft_row(lab), "rate": scale.learning_rate, **shared.of_paper(REPORTED["adaptation"]["centroids"])}
    one, two = ({**row, "rate": scale.learning_rate} for row in shared.focus_rows(lab, 4, (1, 2)))
    rows = [base, lora, larger, soft, one, two]
    unknown = None in (lora["unharmed"], two["unharmed"])
    return Report(
        [
            shared.METHOD,
            shared.TRAINED,
            Column("rate", "learning rate", 4),
            *shared.QUALITY,
            *answers.LAST_WORD_COLUMNS,
            Column("paper_parameters", "weights trained (GPT-2)", 0, paper=True),
            Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
        ],
        rows,
        lab.setting(
            passages_longer_than_the_window=beyond_window(base),
            LoRA=f"query and value projections, alpha 2r, rate {shared.lora_rate(lab):g}",
            seeds={"centroids": scale.seeds, "LoRA": [0]},
        ),
        [answers.ITEMS_NOTE],
        [
            judge(
                "table3 gain",
                lies_below(lora["relative"], soft["relative"]),
                f"LoRA r=4 {value_of(lora):.2f}, centroids {value_of(soft):.2f} under the soft gate, "
                f"{value_of(two):.2f} at k = 2, frozen {value_of(base):.2f}",
            ),
            judge(
                "table3 answers",
                None if unknown else two["unharmed"] and not lora["unharmed"],
                f"last word within the window and in long passages: frozen {both_accuracies(base)}, LoRA r=4 "
                f"{both_accuracies(lora)}, k = 2 {both_accuracies(two)}; beyond the window: {beyond_window(base)}; the "
                "text is of the training's domain: a weak test",
                items=scale.task_items,
            ),
        ],
        shared.perplexity_bars(rows),
    )
