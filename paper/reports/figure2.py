"""Figure 2: what an adaptation gains in its domain against what it loses elsewhere, LoRA and centroids."""

from paper.lab import answers, shared
from paper.lab.answers import beyond_window
from paper.lab.lab import Lab, composed
from paper.lab.shared import quality_cells, value_of
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

RANKS = (1, 2, 4, 8, 16)
ROUTING_DIM = 16


def figure2(lab: Lab) -> Report:
    base = shared.full_row(lab, "frozen model")
    lora = [shared.lora_row(lab, rank) for rank in RANKS]
    centroids = [_centroids(lab, size) for size in (ROUTING_DIM, lab.model.config.get_text_config().hidden_size)]
    adapted = [*lora, *centroids]
    for row in adapted:
        row["lost"] = None if base["long"] is None else value_of(base, "long") - value_of(row, "long")
    forgets = not any(row["unharmed"] for row in lora) and all(row["unharmed"] for row in centroids)
    lost = ", ".join(
        f"{row['method']} {'not measured' if row['lost'] is None else format(row['lost'], '+.1%')}" for row in adapted
    )
    return Report(
        [
            shared.METHOD,
            shared.TRAINED,
            Column("ppl", "perplexity"),
            Column("relative", "against the frozen model", percent=True, signed=True),
            shared.RETAINED,
            shared.DOMINANCE,
            *answers.LAST_WORD_COLUMNS,
            Column("lost", "lost in long passages", 1, percent=True, signed=True),
        ],
        [base, *adapted],
        lab.setting(passages_longer_than_the_window=beyond_window(base)),
        [
            "Perplexity of centroids is under the soft gate they were trained with, as in the paper; answers are given "
            "under the mask at k = 2, as pairs kept are.",
            answers.BENCHMARKS_NOTE,
        ],
        [
            judge(
                "figure2",
                None if None in [row["unharmed"] for row in adapted] else forgets,
                f"right last words lost in long passages: {lost}; beyond the window: {beyond_window(base)}; the "
                "passages are of the training's domain: a weak test",
                items=lab.scale.task_items,
            )
        ],
        _figure({"LoRA": lora, "centroids": centroids}) if base["long"] is not None else None,
    )


def _centroids(lab: Lab, size: int) -> Row:
    centroids = lab.trained(routing_dim=size)
    soft = quality_cells(lab.full(), lab.soft(centroids))
    hard = quality_cells(lab.full(), lab.focus(centroids, top_k=2))
    with composed(lab.model, centroids, top_k=2) as focus:
        right = answers.last_words(lab, focus)
    cells = {"ppl": soft["ppl"], "relative": soft["relative"], "retained": hard["retained"]}
    cells |= {"dominance": hard["dominance"], "trained": shared.weights_of(centroids)}
    return {"method": f"centroids, d_g = {size}", **cells, **right}


def _figure(kinds: dict[str, list[Row]]) -> Figure:
    series = []
    for name, rows in kinds.items():
        chosen = sorted(rows, key=lambda row: int(row["trained"]))
        gained = [-100 * row["relative"].value for row in chosen]
        series.append(Series(name, gained, [100 * row["lost"] for row in chosen]))
    return Figure("line", "perplexity gained in the domain, %", "last words lost, points", series, marks={"none": 0.0})
