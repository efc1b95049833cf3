"""Table 7, its curve and long-context: perplexity under the hard mask, by k, by K and by length."""

from __future__ import annotations

import math
from typing import Any

from focus_explorer.words import ends
from focus_runtime.errors import InputError
from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.speed import layer_speed
from focus_runtime.routing.centroids import Centroids, no_groups
from paper.reports import paper
from paper.reports.cells import quality_cells
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series, agreed, decided, judged
from paper.reports.timing import layer_setting, times_as_fast

MISTRAL = "mistralai/Mistral-7B-v0.1"
FULL, ROUNDING = 0.999, 0.01  # pairs kept and difference of perplexity up to which a mask is full attention
CLAIMED = (1024, 8192)  # tokens from and to which the paper says what k = 2 adds
SPEED_AT = {"tiny": 1024, "small": 16_384, "paper": 65_536}  # tokens at which one layer is timed
QUALITY = [
    Column("ppl", "perplexity"),
    Column("relative", "against full attention", percent=True, signed=True),
    Column("p", "p", 4),
    Column("retained", "pairs kept", 1, percent=True),
    Column("distant", "distant pairs kept", 1, percent=True),
    Column("dominance", "largest group", 1, percent=True),
    Column("dominance_max", "largest group, worst layer", 1, percent=True),
]
LENGTH_COLUMNS = [
    Column("tokens", "tokens", 0),
    Column("method", "method"),
    *QUALITY,
    Column("added", "perplexity added", signed=True),
    Column("sequences", "sequences", 0),
    Column("paper_added", "perplexity added (Mistral 7B, K=4)", paper=True),
]


def null_rows(lab: Lab, *, groups: int = 4, length: int | None = None) -> list[dict[str, Any]]:
    """What the same mask keeps without anything learned: window and sinks alone, and random centroids at k = 1.

    Args:
        lab: model, texts and scale.
        groups: K of the random centroids.
        length: tokens of each sequence; the scale's own when None.
    """
    full = lab.full(length)
    window_only = lab.focus(no_groups(lab.random(num_groups=groups)), length, top_k=1)
    random = lab.focus(lab.random(num_groups=groups), length, top_k=1)
    return [
        {
            "method": "window and sinks only",
            **quality_cells(full, window_only),
            "dominance": None,
            "dominance_max": None,
        },
        {"method": "random centroids, k=1", "k": 1, **quality_cells(full, random)},
    ]


def _speed(lab: Lab, groups: int, top_k: int, length: int) -> dict[str, Any]:
    """One layer's time, how many times as fast as torch's attention it is, and the pairs it keeps itself."""
    measured = layer_speed(layer_setting(lab, groups, top_k), length, repeats=3, seed=length, device=str(lab.device))
    lab.log(f"one layer, {length:,} tokens, K={groups}, k={top_k}: {measured['full_over_focus']:.2f} times as fast")
    return {
        "speed": float(measured["full_over_focus"]),
        "focus_ms": measured["focus_ms"],
        "speed_retained": measured["retained_pairs"],
    }


def seeds(lab: Lab, **config: Any) -> list[Centroids]:
    """Trained centroids of every seed of the scale."""
    return [lab.trained(seed, **config) for seed in lab.scale.seeds]


def _table7(lab: Lab) -> Report:
    """Perplexity, pairs kept and speed, all at the same k."""
    full = lab.full()
    rows: list[dict[str, Any]] = [
        {
            "method": "full attention",
            "ppl": full.perplexity,
            "retained": 1.0,
            "distant": 1.0,
            "speed": 1.0,
            "paper_ppl": 42.8,
        },
        *null_rows(lab),
    ]
    length = SPEED_AT.get(lab.scale.name, 16_384)
    for groups in (4, 8):
        trained = seeds(lab, num_groups=groups)
        for top_k in (1, 2, 3, 4):
            cells = quality_cells(full, [lab.focus(centroids, top_k=top_k) for centroids in trained])
            rows.append(
                {
                    "method": f"Focus K={groups}, k={top_k}",
                    "k": top_k,
                    "groups": groups,
                    **cells,
                    **_speed(lab, groups, top_k, length),
                    "paper_ppl": paper.SPEED_QUALITY.get(top_k) if groups == 4 else None,
                    "paper_retained": paper.KEPT.get(top_k) if groups == 4 else None,
                }
            )
    rows += _mistral_rows(lab, length)
    for row in rows:
        if row.get("groups"):
            every = next(other for other in rows if other.get("groups") == row["groups"] and other["k"] == 4)
            row["own_speed"] = times_as_fast(every["focus_ms"], row["focus_ms"])
    columns = [
        Column("method", "method"),
        *QUALITY,
        Column("own_speed", f"one layer at {length:,} tokens, times as fast as Focus at k = 4"),
        Column("speed_retained", "that layer: pairs kept", 1, percent=True),
        Column("speed", "times as fast as torch's full attention"),
        Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
        Column("paper_retained", "pairs kept", 0, paper=True, percent=True),
    ]
    return Report(
        "table7",
        "Speed and quality by number of groups a token belongs to",
        columns,
        rows,
        {
            **lab.base_setting(),
            "seeds": lab.scale.seeds,
            "training steps": lab.scale.steps,
            "speed": f"one layer, random balanced groups, window 128, {length:,} tokens, medians of 3",
            "speed's interval": "from the slowest and fastest repeat",
        },
        [
            "Intervals: 95 %, bootstrapped over sequences and seeds; p: sign-flip test in pairs with full attention.",
            "The paper's perplexities are of GPT-2 on PG-19 (full attention 42.8) and have no sinks.",
            "At k = 4 of 4 the mask allows every pair: the same kernel, whose time the others are compared with.",
            "The timed layer has random balanced groups and its own length and window, so it keeps other pairs than "
            "the perplexities' masks.",
        ],
        _speed_quality_claims(rows, lab.recipe.num_sinks),
        _trade_off(rows),
    )


def _mistral_rows(lab: Lab, length: int) -> list[dict[str, Any]]:
    """Mistral 7B with K = 4 at every k, at the scale of the paper; a row that says why where it cannot be had."""
    if lab.scale.name != "paper":
        return []
    try:
        other = lab.on_model(MISTRAL)
    except InputError as error:
        lab.log(f"Mistral 7B is not measured: {error}")
        return [{"method": f"Mistral 7B: not measured, {error.problem}"}]
    full = other.full()
    rows: list[dict[str, Any]] = [
        {"method": "Mistral 7B, full attention", "ppl": full.perplexity, "retained": 1.0, "paper_ppl": 10.8}
    ]
    trained = seeds(other, num_groups=4)
    for top_k in (1, 2, 3, 4):
        scores = [other.focus(centroids, top_k=top_k) for centroids in trained]
        rows.append(
            {
                "method": f"Mistral 7B, Focus K=4, k={top_k}",
                **quality_cells(full, scores),
                "speed": _speed(other, 4, top_k, length)["speed"],
                "paper_ppl": paper.SPEED_QUALITY_MISTRAL[top_k],
            }
        )
    return rows


def _speed_quality_claims(rows: list[dict[str, Any]], sinks: int) -> list[Claim]:
    full = rows[0]["ppl"]
    by = {(row["groups"], row["k"]): row for row in rows if row.get("groups")}

    def excess(groups: int, top_k: int) -> float:
        return by[groups, top_k]["ppl"].value / full - 1

    two, one = by[4, 2], by[4, 1]
    return [
        judged(
            "K = 4, k = 2 beats the pretrained model (41.3 against 42.8)",
            two["relative"],
            below=0.0,
            evidence=f"{two['retained']:.0%} of pairs kept, p = {two['p']:.3f}",
        ),
        judged(
            "K = 4, k = 2 is twice as fast",
            two["own_speed"],
            above=2.0,
            form=".2f",
            evidence=f"times as fast as the same mask with every pair allowed (k = 4), {_by_pairs(two, by[4, 4])}; "
            f"{two['speed']:.2f} times as fast as torch's attention, another kernel",
        ),
        judged(
            "k = 1 ruins quality (82.9 against 42.8, +94 %)",
            one["relative"],
            above=0.2,
            evidence=f"{sinks} sinks, {one['distant']:.0%} of distant pairs kept",
        ),
        Claim(
            "k = 3 of 4 recovers the pretrained model (the paper has 47.2 for it)",
            abs(excess(4, 3)) < ROUNDING and by[4, 3]["retained"] > FULL,
            f"{excess(4, 3):+.3%} at {by[4, 3]['retained']:.1%} of pairs kept: full attention",
            "by counting: of four groups any two sets of three share one, so no pair is left out",
        ),
    ]


def _by_pairs(row: dict[str, Any], every: dict[str, Any]) -> str:
    """How much of a timed layer's speed against that of all pairs the pairs it keeps account for, in words."""
    kept = row["speed_retained"] / every["speed_retained"]
    words = f"of which the {kept:.1%} of pairs that the timed layer keeps account for {1 / kept:.2f}"
    return f"{words} and something else for the rest" if row["own_speed"].value > 1 / kept else f"{words} at most"


def _trade_off(rows: list[dict[str, Any]]) -> Figure:
    """Paired differences: the spread between sequences would hide them in perplexities as they are."""
    series = []
    for groups in (4, 8):
        points = [row for row in rows if row.get("groups") == groups]
        cells = [row["relative"].through(lambda value: 100 * value) for row in points]
        series.append(
            Series(
                f"Focus K={groups}",
                [100 * row["retained"] for row in points],
                [c.value for c in cells],
                [c.low if c.low is not None else c.value for c in cells],
                [c.high if c.high is not None else c.value for c in cells],
            )
        )
    nulls = {row["method"]: 100 * row["relative"].value for row in rows[1:3]}
    return Figure(
        "line", "pairs kept, %", "perplexity above full attention, %", series, marks={"full attention": 0.0, **nulls}
    )


def table7(lab: Lab) -> Report:
    """The table; measured once for it and `pairs-kept`."""
    return lab.once("table7", _table7)


def pairs_kept(lab: Lab) -> Report:
    """The curve of table 7."""
    report = table7(lab)
    report.name, report.title = "pairs-kept", "Perplexity against pairs kept, k = 1 to 4"
    return report


def long_context(lab: Lab) -> Report:
    """Perplexity at growing length with centroids trained at one length."""
    rows: list[dict[str, Any]] = []
    trained = {groups: lab.trained(lab.scale.seeds[0], num_groups=groups) for groups in (4, 8)}
    for length in lab.scale.long_lengths:
        positions = getattr(lab.model.config.get_text_config(), "n_positions", None)
        if positions is not None and length > positions:
            lab.log(f"the model has {positions:,} positions: {length:,} tokens are left out")
            continue
        if length > lab.val_ids.numel():
            lab.log(f"the held-out text has {lab.val_ids.numel():,} tokens: {length:,} is left out")
            continue
        count = max(2, lab.scale.val_sequences * lab.scale.seq_len // length)
        full = lab.full(length, count)
        rows.append(
            {
                "tokens": length,
                "method": "full attention",
                "ppl": full.perplexity,
                "retained": 1.0,
                "distant": 1.0,
                "sequences": full.nll.size,
            }
        )
        for groups, centroids in trained.items():
            for top_k in (1, 2, 3) if groups == 4 else (1, 2):
                cells = quality_cells(full, lab.focus(centroids, length, count, top_k=top_k))
                rows.append(
                    {
                        "tokens": length,
                        "method": f"Focus K={groups}, k={top_k}",
                        "groups": groups,
                        "k": top_k,
                        "sequences": full.nll.size,
                        "added": cells["ppl"].value - full.perplexity,
                        **cells,
                        "paper_added": paper.LONG_CONTEXT.get(top_k) if groups == 4 else None,
                    }
                )
    return Report(
        "long-context",
        "Perplexity by text length, centroids trained at one length",
        LENGTH_COLUMNS,
        rows,
        {
            **lab.base_setting(),
            "trained at": f"{lab.scale.seq_len} tokens",
            "seeds": lab.scale.seeds[:1],
            "training steps": lab.scale.steps,
        },
        [
            "Each length has its own sequences of the same held-out text, so compare within a length.",
            "Few sequences at the longest lengths: read the intervals.",
        ],
        _length_claims(rows),
        _length_figure(rows),
    )


def _length_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    two = [row for row in rows if row.get("groups") == 4 and row["k"] == 2]
    three = [row for row in rows if row.get("groups") == 4 and row["k"] == 3]
    first, last = CLAIMED
    missing = [f"{length:,}" for length in CLAIMED if length not in {row["tokens"] for row in two}]
    verdicts = [decided(_added(row), below=0.5) for row in two if first <= row["tokens"] <= last]
    added = [(row, _added(row)) for row in two]
    evidence = ", ".join(
        f"{gap.value:+.2f} at {row['tokens']:,} tokens ({ends(gap.low, gap.high, '+.2f')})" for row, gap in added
    )
    return [
        Claim(
            f"K = 4, k = 2 adds at most half a point of perplexity from {first:,} to {last:,} tokens",
            agreed([*verdicts, None] if missing else verdicts),
            "; ".join([evidence or "not measured", *([f"not measured at {' and '.join(missing)}"] if missing else [])]),
            "margin: below +0.50 at every length; smallest effect these data can show: the intervals' halves",
        ),
        Claim(
            "k = 3 of 4 adds nothing",
            all(map(_is_full, three)) if three else None,
            _nothing_added(three) if three else "not measured",
            "by counting: of four groups any two sets of three share one, so this is full attention at any length; "
            f"margin: more than {FULL:.1%} of pairs kept, and no interval wholly beyond {ROUNDING:.0%} to either side",
        ),
    ]


def _is_full(row: dict[str, Any]) -> bool:
    """Whether a mask keeps every pair and differs from full attention by no more than rounding does."""
    gap = row["relative"]
    low, high = (gap.value if end is None else end for end in (gap.low, gap.high))
    return bool(row["retained"] > FULL and low <= ROUNDING and high >= -ROUNDING)


def _nothing_added(three: list[dict[str, Any]]) -> str:
    """What k = 3 keeps and adds at the measured lengths."""
    added, gaps = [row["added"] for row in three], [row["relative"] for row in three]
    lengths = ", ".join(
        f"{gap.value:+.2%} ({ends(gap.low, gap.high, '+.2%')}) at {row['tokens']:,} tokens"
        for row, gap in zip(three, gaps, strict=True)
    )
    return (
        f"at least {min(row['retained'] for row in three):.1%} of pairs kept; {min(added):+.3f} to {max(added):+.3f} "
        f"points: {lengths}"
    )


def _added(row: dict[str, Any]) -> Interval:
    """Perplexity added to full attention's, from the paired relative difference."""
    full, gap = row["ppl"].value - row["added"], row["relative"]
    low, high = (None if end is None else end * full for end in (gap.low, gap.high))
    return Interval(row["added"], low, high, 0)


def _length_figure(rows: list[dict[str, Any]]) -> Figure:
    names = sorted({row["method"] for row in rows if row.get("groups")})
    series = []
    for name in names:
        points = [row for row in rows if row["method"] == name]
        y = [100 * row["relative"].value for row in points]
        low, high = (
            [
                100 * (getattr(row["relative"], end) if getattr(row["relative"], end) is not None else math.nan)
                for row in points
            ]
            for end in ("low", "high")
        )
        series.append(Series(name, [row["tokens"] for row in points], y, low, high))
    return Figure("line", "tokens", "perplexity above full attention, %", series, log_x=True, marks={"": 0.0})
