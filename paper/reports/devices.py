"""devices: what keeps the hard groups balanced while centroids train, where Sinkhorn balances soft mass alone."""

from focus_runtime.fit.calibrate import calibrate_potentials
from paper.lab.balancing import DEVICES, Strategy, StrategyTraining
from paper.lab.lab import CALIBRATION, Lab
from paper.output.report import Claim, Column, Report, Row
from paper.verdicts import judge

GROUPS = 8
RATE = 1e-2  # three times the recipe's: the imbalance is to show within a scale's steps


def devices(lab: Lab) -> Report:
    count = max(3, lab.scale.val_sequences // 2)
    settings = lab.plan(lab.seed, steps=lab.scale.sweep_steps, learning_rate=RATE)
    rows = [_row(lab, device, count) for device in DEVICES.values()]
    columns = [Column("device", "device"), Column("training", "largest group, last batch", 1, percent=True)]
    columns += [Column("training_max", "worst layer", 1, percent=True), Column("dead", "empty groups of 8", 1)]
    for kind in ("before", "after"):
        columns += [
            Column(kind, f"{kind} balancing: perplexity, k = 1"),
            Column(f"{kind}_retained", "pairs kept", 1, percent=True),
            Column(f"{kind}_dominance", "largest group", 1, percent=True),
            Column(f"{kind}_max", "worst layer", 1, percent=True),
        ]
    columns.append(Column("meaning", "definition"))
    return Report(
        columns,
        rows,
        lab.setting(groups=GROUPS, steps=settings.steps, sequences=count, learning_rate=RATE),
        [
            f"Full attention: perplexity {lab.full(count=count).perplexity:.2f}.",
            "Before: column potentials as learned in training. After: set so that every group is chosen equally often "
            "on training text.",
            "One seed; the rate is three times the recipe's.",
        ],
        _claims(rows),
    )


def _row(lab: Lab, device: Strategy, count: int) -> Row:
    settings = lab.plan(lab.seed, steps=lab.scale.sweep_steps, learning_rate=RATE)
    training = StrategyTraining(lab.model, device, lab.config(num_groups=GROUPS), settings)
    centroids = training.run(lab.train_ids)
    last = training.rows[-1]
    lab.log(f"{device.name}: largest group {last['dominance']:.3f} (worst layer {last['dominance_max']:.3f})")
    row = {
        "device": device.name,
        "meaning": device.meaning,
        "training": last["dominance"],
        "training_max": last["dominance_max"],
        "dead": last["dead_groups"],
    }
    for kind in ("before", "after"):
        if kind == "after":
            calibrate_potentials(lab.model, centroids, lab.training_sequences(CALIBRATION))
        scores = lab.focus(centroids, count=count, top_k=1, assignment="causal")
        row |= {
            kind: scores.perplexity,
            f"{kind}_retained": float(scores.retained_pairs.mean()),
            f"{kind}_dominance": float(scores.dominance.mean()),
            f"{kind}_max": float(scores.dominance.max()),
        }
    return row


def _claims(rows: list[Row]) -> list[Claim]:
    best = min(rows, key=lambda row: row["after"])
    base = next(row for row in rows if row["device"] == "sinkhorn-20")
    equal_pairs = abs(best["after_retained"] - base["after_retained"]) < 0.01
    return [
        judge(
            "devices Sinkhorn",
            base["before_max"],
            f"N = 20: worst layer {base['training_max']:.1%} in the last batch, {base['before_max']:.1%} on held-out "
            f"text before balancing the potentials, {base['after_max']:.1%} after",
        ),
        judge(
            "devices others",
            best["after"] < 0.995 * base["after"] if equal_pairs else None,
            f"best {best['device']} {best['after']:.2f} at {best['after_retained']:.1%} of pairs, sinkhorn-20 "
            f"{base['after']:.2f} at {base['after_retained']:.1%}",
        ),
    ]
