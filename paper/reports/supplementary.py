"""Reports beyond the paper: attention mass kept, leak of later tokens, sinks, choice of layers, balance of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from focus_runtime.composition.attach import compose
from focus_runtime.measure.attention_mass import MassKept, attention_mass_kept
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.routing.centroids import Centroids, no_groups
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series, judged
from paper.studies.future_leak import assignment_leak, future_effect
from paper.studies.group_balance import group_balance
from paper.studies.inference_settings import sweep_masks
from paper.studies.layers import layer_curve, layers_alone

SOME = 4  # held-out sequences where every layer is run alone or every probability is counted
HALF = 8  # where many settings are scored
SINK_COUNTS = (0, 1, 2, 3, 4, 6, 8)


def _mass(lab: Lab, centroids: Centroids, top_k: int) -> MassKept:
    focus = compose(lab.model, centroids, top_k=top_k)
    try:
        mass = attention_mass_kept(focus, lab.sequences(count=SOME))
    finally:
        focus.detach()
    lab.log(f"mass kept K={centroids.config.num_groups} k={top_k}: {mass.kept.mean():.3f}")
    return mass


def mass(lab: Lab) -> Report:
    """Share of full attention's probability that the mask keeps, by layer."""
    rows: list[dict[str, Any]] = []
    series = []
    for groups in (4, 8):
        trained, random = lab.trained(lab.scale.seeds[0], num_groups=groups), lab.random(num_groups=groups)
        plans = [("trained", trained, 1), ("trained", trained, 2), ("random", random, 1), ("random", random, 2)]
        if groups == 4:
            plans.append(("window and sinks only", no_groups(random), 1))
        for name, centroids, top_k in plans:
            mass = _mass(lab, centroids, top_k)
            by_layer = mass.kept.mean(axis=1)
            label = name if name.startswith("window") else f"{name}, K={groups}, k={top_k}"
            worst = np.unravel_index(int(mass.kept.argmin()), mass.kept.shape)
            rows.append(
                {
                    "setting": label,
                    "kept": float(mass.kept.mean()),
                    "low": float(by_layer.min()),
                    "head": float(mass.kept.min()),
                    "where": f"layer {mass.layers[worst[0]]}, head {worst[1]}",
                    "distant": float(np.nanmean(mass.distant_kept)),
                }
            )
            if top_k == 1:
                series.append(Series(label, list(mass.layers), [100 * v for v in by_layer], dash=name != "trained"))
    trained_row, random_row = rows[0], rows[2]
    claims = [
        Claim(
            "(a reader's question) the pairs that are dropped carried little attention",
            trained_row["kept"] > 0.9,
            f"K = 4, k = 1 keeps {trained_row['kept']:.1%} of the probability, {trained_row['distant']:.1%} of that "
            f"on distant pairs; random groups {random_row['kept']:.1%} and {random_row['distant']:.1%}",
            "margin: more than 90 % of the probability, by means; one seed",
        ),
    ]
    columns = [
        Column("setting", "setting"),
        Column("kept", "attention kept, mean", 1, percent=True),
        Column("low", "least layer", 1, percent=True),
        Column("head", "least head", 1, percent=True),
        Column("where", "which head"),
        Column("distant", "of attention to distant pairs", 1, percent=True),
    ]
    return Report(
        "mass",
        "Full attention's probability that the mask keeps, held-out text",
        columns,
        rows,
        {**lab.base_setting(), "sequences": SOME},
        ["The frozen model's own hidden states and attention; means over query positions, heads and layers."],
        claims,
        Figure("line", "layer", "attention kept, %", series),
    )


def _flat(layers: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """An analysis' rows under Focus as table rows: perplexity and difference with intervals over sequences."""
    rows = []
    for row in layers:
        setting = row["setting"]
        if setting["centroids"] == "full attention":
            continue
        rows.append({**row, **setting, **more, "relative": mean_interval(row["differences"]).through(np.expm1)})
    return rows


SETTING = [
    Column("perplexity", "perplexity"),
    Column("relative", "against full attention", percent=True, signed=True),
    Column("retained_pairs", "pairs kept", 1, percent=True),
    Column("distant_kept", "distant pairs", 1, percent=True),
    Column("dominance_mean", "largest group", 1, percent=True),
    Column("dominance_max", "worst layer", 1, percent=True),
]


def leak(lab: Lab) -> Report:
    """Sinkhorn assignment, which uses the whole text, compared with causal assignment."""
    rows: list[dict[str, Any]] = []
    gaps, effects = [], []
    for groups in (4, 8):
        trained = lab.trained(lab.scale.seeds[0], num_groups=groups)
        leaks = _flat(assignment_leak(lab.model, trained, lab.sequences(), top_ks=(1, 2)))
        future = {
            row["setting"]["top_k"]: row for row in future_effect(lab.model, trained, lab.sequences(), top_ks=(1, 2))
        }
        for row in leaks:
            lab.log(f"K={groups} k={row['top_k']} {row['assignment']}: perplexity {row['perplexity']:.3f}")
            if row["assignment"] == "sinkhorn":
                row["differing"] = float(np.mean(list(row["tokens_differing"].values())))
                row["against"] = mean_interval(row["against_causal"]).through(np.expm1)
                row["future"] = mean_interval(future[row["top_k"]]["differences"]).through(np.expm1)
                gaps.append(row["against"].value)
                effects.append(row["future"])
        rows += leaks
    claims = [
        judged(
            "(a reader's question) looking at later tokens flatters Sinkhorn's perplexity by more than 0.5 %",
            min(effects, key=lambda effect: effect.value),
            below=-0.005,
            evidence="the largest of what the second half of a text does to its first half: "
            + ", ".join(f"{effect.value:+.2%}" for effect in effects)
            + "; sinkhorn against causal: "
            + ", ".join(f"{gap:+.2%}" for gap in gaps),
        ),
    ]
    columns = [
        Column("num_groups", "K", 0),
        Column("top_k", "k", 0),
        Column("assignment", "assignment"),
        *SETTING,
        Column("differing", "tokens with other groups", 1, percent=True),
        Column("against", "sinkhorn against causal", percent=True, signed=True),
        Column("future", "first half, with and without the second", percent=True, signed=True),
    ]
    return Report(
        "leak",
        "How much the future leaks through Sinkhorn's column sums",
        columns,
        rows,
        {**lab.base_setting(), "seeds": lab.scale.seeds[:1]},
        [
            "Sinkhorn against causal mixes the leak with balancing on the text at hand; the last column is the leak "
            "alone."
        ],
        claims,
    )


def sinks(lab: Lab) -> Report:
    """0 to 8 sinks at every k, trained with and without them."""
    rows: list[dict[str, Any]] = []
    for trained_with in (0, 4):
        trained = lab.trained(lab.scale.seeds[0], num_groups=4, num_sinks=trained_with)
        settings = sweep_masks(
            lab.model,
            trained,
            lab.sequences(count=HALF),
            lab.training_sequences(8),
            top_ks=(1, 2),
            windows=(),
            sinks=SINK_COUNTS,
        )
        rows += _flat(settings, trained_with=trained_with)
        lab.log(f"trained with {trained_with} sinks: {len(settings)} settings scored")
    given = [row for row in rows if row["centroids"] == "given"]
    series = []
    for start in (0, 4):
        for top_k in (1, 2):
            part = [r for r in given if r["trained_with"] == start and r["top_k"] == top_k]
            label = f"k={top_k}, trained with {start} sinks"
            series.append(Series(label, [r["num_sinks"] for r in part], [r["perplexity"] for r in part]))
    one = {(r["trained_with"], r["num_sinks"]): r["relative"].value for r in given if r["top_k"] == 1}
    claims = [
        Claim(
            "(ours) four sinks remove most of what the mask costs at k = 1",
            one[4, 4] < 0.5 * one[0, 0],
            f"k = 1: {one[0, 0]:+.1%} trained and used without sinks, {one[4, 4]:+.1%} trained and used with 4, "
            f"{one[0, 4]:+.1%} trained without and used with 4",
            "margin: less than half of the loss without sinks, by means; one seed",
        ),
    ]
    columns = [
        Column("trained_with", "sinks in training", 0),
        Column("num_sinks", "sinks", 0),
        Column("centroids", "centroids"),
        Column("top_k", "k", 0),
        *SETTING,
        Column("gap_recovered", "gap to no groups recovered", 0, percent=True),
    ]
    full = lab.full(count=HALF).perplexity
    return Report(
        "sinks",
        "Attention sinks, 0 to 8, trained with and without (K = 4)",
        columns,
        rows,
        {**lab.base_setting(), "sinks": "varied", "seeds": lab.scale.seeds[:1], "sequences": HALF},
        [],
        claims,
        Figure("line", "sinks", "perplexity", series, marks={"full attention": full}),
    )


def layers(lab: Lab) -> Report:
    """Which layers should get routers."""
    trained = lab.trained(lab.scale.seeds[0], num_groups=8)
    ranked_on, judged_on = lab.training_sequences(SOME), lab.sequences(count=SOME)
    alone = layers_alone(lab.model, trained, ranked_on, top_k=1)
    ranking = [row["layers"][0] for row in alone[1:]]
    lab.log(f"layers by loss per dropped pair, best first: {ranking}")
    total = len(ranking)
    counts = sorted({max(1, round(total * share)) for share in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)})
    curve = layer_curve(lab.model, trained, judged_on, ranking, counts=counts, seeds=(0,), top_k=1)
    rows = _flat(curve)
    names = list(dict.fromkeys(row["order"] for row in rows))
    series = [
        Series(
            n, [len(r["layers"]) for r in rows if r["order"] == n], [r["perplexity"] for r in rows if r["order"] == n]
        )
        for n in names
    ]
    half = {
        n: next(r for r in rows if r["order"] == n and len(r["layers"]) == counts[len(counts) // 2 - 1]) for n in names
    }
    claims = [
        Claim(
            "(ours) the choice of layers matters",
            half["best first"]["relative"].value < 0.5 * half["worst first"]["relative"].value,
            "; ".join(f"{n} {row['relative'].value:+.2%}" for n, row in half.items())
            + f" with {len(half['best first']['layers'])} of {total} layers under Focus",
            "margin: the best half loses less than half of what the worst half does, by means",
        ),
    ]
    columns = [Column("order", "layers chosen"), Column("focused_layers", "layers under Focus", 0), *SETTING]
    full = lab.full(count=SOME).perplexity
    return Report(
        "layers",
        "Perplexity by number of layers under Focus (K = 8, k = 1)",
        columns,
        rows,
        {
            **lab.base_setting(),
            "sequences": SOME,
            "seeds": lab.scale.seeds[:1],
            "ranking, best first": ranking,
        },
        [
            "Layers are ranked on training text by the loss each alone adds per pair it drops; the curve is of "
            "held-out text. Pairs kept are of the layers under Focus alone."
        ],
        claims,
        Figure("line", "layers under Focus", "perplexity", series, marks={"full attention": full}),
        {"alone": alone},
    )


def balance(lab: Lab) -> Report:
    """The largest group by layer on held-out text, with potentials balanced on training text."""
    rows, series = [], []
    for groups in (4, 8):
        trained = lab.trained(lab.scale.seeds[0], num_groups=groups)
        balance = group_balance(lab.model, trained, lab.sequences())
        over = [row["layer"] for row in balance if row["exceeds"]]
        shares = [row["dominance"] for row in balance]
        rows.append(
            {
                "setting": f"K={groups}",
                "limit": 1.5 / groups,
                "mean": float(np.mean(shares)),
                "most": max(shares),
                "over": ", ".join(map(str, over)) or "none",
                "late": float(np.mean([row["dominance_by_block"][-1] for row in balance])),
                "early": float(np.mean([row["dominance_by_block"][0] for row in balance])),
            }
        )
        series.append(Series(f"K={groups}", [r["layer"] for r in balance], [100 * groups * v for v in shares]))
        lab.log(f"K={groups}: largest group {np.mean(shares):.3f} on average, {max(shares):.3f} at most")
    held = all(row["over"] == "none" for row in rows)
    claims = [
        Claim(
            "groups stay balanced on held-out text: at most 1.5/K in every layer, potentials balanced after training",
            held,
            "; ".join(
                f"{row['setting']}: at most {row['most']:.3f} (limit {row['limit']:.4f}), layers over it: {row['over']}"
                for row in rows
            ),
            "margin: 1.5 / K in every layer",
        ),
    ]
    columns = [
        Column("setting", "setting"),
        Column("limit", "1.5 / K", 2, percent=True),
        Column("mean", "largest group, mean", 1, percent=True),
        Column("most", "worst layer", 1, percent=True),
        Column("early", "first quarter of a sequence", 1, percent=True),
        Column("late", "last quarter", 1, percent=True),
        Column("over", "layers over 1.5 / K"),
    ]
    return Report(
        "balance",
        "Largest group by layer on held-out text",
        columns,
        rows,
        {**lab.base_setting(), "seeds": lab.scale.seeds[:1], "steps": lab.scale.steps},
        ["Over all held-out tokens together. Potentials were balanced on training text."],
        claims,
        Figure("line", "layer", "largest group, % of even", series, marks={"1.5 / K": 150.0, "even": 100.0}),
    )
