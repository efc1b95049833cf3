"""Table 3: centroids compared with LoRA of as many parameters on the same data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_runtime.measure.perplexity import score
from paper.methods import LoRA
from paper.reports import paper
from paper.reports.adaptation import (
    APART,
    beyond_window,
    both_accuracies,
    focus_rows,
    lies_below,
    of_paper,
    perplexity_bars,
    soft_row,
    value_of,
)
from paper.reports.answers import ITEMS_NOTE, answer_columns, answers
from paper.reports.cells import plain_cells
from paper.reports.lab import Lab
from paper.reports.quality import QUALITY
from paper.reports.report import Claim, Column, Report, answers_rule


def _lora(lab: Lab, rank: int, rate: float, evaluate: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """LoRA on the query and value projections, trained, scored and taken off again."""

    def measured() -> dict[str, Any]:
        network = lab.fresh_model()
        with LoRA(rank=rank, alpha=2.0 * rank).attach(network) as handle:
            parameters = handle.parameters()
            lab.adapt(f"LoRA r={rank} rate {rate:g}", handle.model, parameters, rate, steps=lab.scale.steps)
            return {"trained": sum(p.numel() for p in parameters), "rate": rate, **evaluate(handle.model)}

    settings = {"steps": lab.scale.steps, "items": lab.scale.task_items}
    return lab.kept(f"LoRA r={rank} rate {rate:g}", measured, **settings)


def lora_row(lab: Lab, rank: int) -> dict[str, Any]:
    """LoRA of a rank at the middle one of the scale's rates: perplexity and last words."""

    def both(model: Any) -> dict[str, Any]:
        return {**plain_cells(lab.full(), score(model, lab.sequences())), **answers(lab, model), "retained": 1.0}

    return _lora(lab, rank, lora_rate(lab), both)


def lora_rate(lab: Lab) -> float:
    """The learning rate of LoRA where one is taken."""
    rates = lab.scale.lora_rates
    return rates[len(rates) // 2]


def table3(lab: Lab) -> Report:
    """Centroids compared with LoRA of as many parameters."""
    scale, full, rate = lab.scale, lab.full(), lora_rate(lab)
    rows: list[dict[str, Any]] = [
        {"method": "frozen model", "trained": 0, "ppl": full.perplexity, "retained": 1.0, **answers(lab, lab.model)}
    ]
    for rank in (4, 16):
        reported = of_paper(paper.ADAPTATION[f"LoRA r={rank}"])
        rows.append({"method": f"LoRA r={rank}", **lora_row(lab, rank), **reported})
    rows.append({**soft_row(lab), "rate": scale.learning_rate, **of_paper(paper.ADAPTATION["centroids"])})
    rows += [{**row, "rate": scale.learning_rate} for row in focus_rows(lab, 4, (1, 2))]
    columns = [
        Column("method", "method"),
        Column("trained", "weights trained", 0),
        Column("rate", "learning rate", 4),
        *QUALITY,
        *answer_columns(lab),
        Column("paper_parameters", "weights trained (GPT-2)", 0, paper=True),
        Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
    ]
    lora, base = rows[1], rows[0]
    soft, two = rows[3], next(row for row in rows if row["method"] == "Focus K=4, k=2")
    claims = [
        Claim(
            "LoRA lowers perplexity more than centroids do (31.6 against 34.2)",
            lies_below(lora["relative"], soft["relative"]),
            f"LoRA r=4 {value_of(lora):.2f}, centroids {value_of(soft):.2f} under the soft gate, "
            f"{value_of(two):.2f} at k = 2, frozen {value_of(base):.2f}",
            APART,
        ),
        Claim(
            "LoRA costs accuracy elsewhere, centroids none",
            None if None in (lora["unharmed"], two["unharmed"]) else two["unharmed"] and not lora["unharmed"],
            f"last word within the window and in long passages: frozen {both_accuracies(base)}, LoRA r=4 "
            f"{both_accuracies(lora)}, k = 2 {both_accuracies(two)}; beyond the window: {beyond_window(rows)}; the "
            "text is of the training's domain: a weak test",
            answers_rule(scale.task_items),
        ),
    ]
    return Report(
        "table3",
        "Centroids beside LoRA on the same data",
        columns,
        rows,
        {
            **lab.base_setting(),
            "steps": scale.steps,
            "passages longer than the window": beyond_window(rows),
            "LoRA": f"query and value projections, alpha 2r, rate {rate:g}",
            "seeds": {"centroids": scale.seeds, "LoRA": [0]},
        },
        [ITEMS_NOTE],
        claims,
        perplexity_bars(rows),
    )
