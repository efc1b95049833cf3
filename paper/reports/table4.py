"""Table 4: what adaptation does to multiple-choice answers, of a local task of TruthfulQA's form."""

from focus_runtime.measure.perplexity import score
from paper.lab import shared
from paper.lab.answers import Tasks
from paper.lab.lab import Lab, composed
from paper.lab.shared import quality_cells
from paper.methods import LoRA
from paper.output.report import Claim, Column, Report, Row
from paper.reported import REPORTED
from paper.tasks.next_sentence import TASK, YAML, next_sentence_items
from paper.verdicts import judge

RANK = 4


def table4(lab: Lab) -> Report:
    scale, full = lab.scale, lab.full()
    length, items = 3 * scale.seq_len // 4, scale.task_items
    answers = Tasks.local(
        lab, TASK, lambda: next_sentence_items(lab.held_out, lab.tokenizer, length=length, items=items), YAML, "acc"
    )
    base, centroids = (REPORTED["truthful"][name] / 100 for name in ("base", "centroids"))
    cells: Row = {"ppl": full.perplexity, "retained": 1.0, "paper_accuracy": base}
    rows: list[Row] = [{"method": "as it is", **cells, **answers.cells(lab.model)}]
    trained = lab.trained(num_groups=4)
    for top_k in (2, 1):
        with composed(lab.model, trained, top_k=top_k) as focus:
            cells = {**quality_cells(full, score(focus, lab.sequences())), **answers.cells(focus)}
        cells |= {"rate": scale.learning_rate, "paper_accuracy": centroids if top_k == 2 else None}
        rows.append({"method": f"centroids, k={top_k}", **cells})
    for rate in scale.lora_rates:
        network = lab.fresh_model()
        with LoRA(rank=RANK, alpha=2.0 * RANK).attach(network) as handle:
            lab.adapt(f"LoRA r={RANK} rate {rate:g}", network, handle.parameters(), rate, steps=scale.steps)
            cells = {**shared.plain_cells(full, score(network, lab.sequences())), **answers.cells(network)}
        rows.append({"method": f"LoRA r={RANK}", "rate": rate, "retained": 1.0, **cells})
    return Report(
        [
            shared.METHOD,
            Column("rate", "learning rate", 4),
            Column("accuracy", "right answers", 1, percent=True),
            Column("accuracy_p", "p", 4),
            Column("ppl", "perplexity"),
            shared.RELATIVE,
            shared.RETAINED,
            shared.DOMINANCE,
            Column("paper_accuracy", "TruthfulQA MC1 (Mistral-7B-Instruct)", 1, paper=True, percent=True),
        ],
        rows,
        lab.setting() | answers.setting(),
        [
            "A local task stands in for TruthfulQA, which `focus-explorer evaluate` runs where the hub can be reached. "
            "It has its form (one right answer of four, chosen by likelihood, chance 25 %) and none of its content: "
            "which sentence follows a passage of the held-out text.",
            "The paper's LoRA values lie between 28.5 and 40.1 depending on the rate.",
        ],
        _claims(rows, answers.items),
    )


def _claims(rows: list[Row], items: int) -> list[Claim]:
    base, two = rows[0], rows[1]
    lora = [row for row in rows if row["method"].startswith("LoRA")]
    harmed = [row["unharmed"] is False for row in lora]
    nearly_all = True if sum(harmed) >= len(lora) - 1 else False if all(row["unharmed"] for row in lora) else None
    listed = ", ".join(f"{row['accuracy'].value:.1%} at {row['rate']:g} (p = {row['accuracy_p']:.2f})" for row in lora)
    kept = f"{base['accuracy'].value:.1%} as it is, {two['accuracy'].value:.1%} with centroids at k = 2 "
    return [
        judge("table4 centroids", two["unharmed"], f"{kept}(p = {two['accuracy_p']:.2f})", items=items),
        judge("table4 LoRA", nearly_all, listed, items=items),
    ]
