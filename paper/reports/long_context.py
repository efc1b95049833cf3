"""long-context: perplexity at growing length with centroids trained at one length."""

from dataclasses import replace

from focus_explorer.words import ends
from focus_runtime.measure.intervals import Interval
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells
from paper.output.report import Claim, Column, Figure, Report, Row, Series
from paper.reported import REPORTED
from paper.verdicts import FULL, ROUNDING, judge

CLAIMED = (1024, 8192)  # tokens from and to which the paper says what k = 2 adds


def long_context(lab: Lab) -> Report:
    rows: list[Row] = []
    trained = {groups: lab.trained(num_groups=groups) for groups in (4, 8)}
    positions = getattr(lab.model.config.get_text_config(), "n_positions", None)
    for length in lab.scale.long_lengths:
        if positions is not None and length > positions:
            lab.log(f"the model has {positions:,} positions: {length:,} tokens are left out")
            continue
        if length > lab.val_ids.numel():
            lab.log(f"the held-out text has {lab.val_ids.numel():,} tokens: {length:,} is left out")
            continue
        count = max(2, lab.scale.val_sequences * lab.scale.seq_len // length)
        full = lab.full(length, count)
        same = {"tokens": length, "sequences": full.nll.size}
        rows.append(same | {"method": "full attention", "ppl": full.perplexity, "retained": 1.0, "distant": 1.0})
        for groups, centroids in trained.items():
            for top_k in (1, 2, 3) if groups == 4 else (1, 2):
                cells = quality_cells(full, lab.focus(centroids, length, count, top_k=top_k))
                cells |= {"method": f"Focus K={groups}, k={top_k}", "groups": groups, "k": top_k}
                cells |= {"added": cells["ppl"].value - full.perplexity}
                rows.append(
                    same | cells | {"paper_added": REPORTED["long_context"].get(top_k) if groups == 4 else None}
                )
    return Report(
        [
            Column("tokens", "tokens", 0),
            shared.METHOD,
            *shared.QUALITY,
            Column("added", "perplexity added", signed=True),
            Column("sequences", "sequences", 0),
            Column("paper_added", "perplexity added (Mistral 7B, K=4)", paper=True),
        ],
        rows,
        lab.setting(trained_at=f"{lab.scale.seq_len} tokens"),
        [
            "Each length has its own sequences of the same held-out text, so compare within a length.",
            "Few sequences at the longest lengths: read the intervals.",
        ],
        length_claims(rows),
        _figure(rows),
    )


def length_claims(rows: list[Row]) -> list[Claim]:
    """What the paper claims of K = 4, decided by the lengths that were measured."""
    two, three = ([row for row in rows if row.get("groups") == 4 and row["k"] == top_k] for top_k in (2, 3))
    first, last = CLAIMED
    missing = [f"{length:,}" for length in CLAIMED if length not in {row["tokens"] for row in two}]
    gaps = [_added(row) for row in two if first <= row["tokens"] <= last]
    added = ", ".join(
        f"{gap.value:+.2f} at {tokens:,} tokens ({ends(gap.low, gap.high, '+.2f')})"
        for tokens, gap in ((row["tokens"], _added(row)) for row in two)
    )
    evidence = [added or "not measured"] + ([f"not measured at {' and '.join(missing)}"] if missing else [])
    claim = judge("long-context k = 2", gaps, "; ".join(evidence))
    return [
        replace(claim, held=None) if missing and claim.held else claim,
        judge(
            "long-context k = 3",
            all(map(_is_full, three)) if three else None,
            _nothing_added(three) if three else "not measured",
        ),
    ]


def _added(row: Row) -> Interval:
    """Perplexity added to full attention's, from the paired relative difference."""
    full, gap = row["ppl"].value - row["added"], row["relative"]
    low, high = (None if end is None else end * full for end in (gap.low, gap.high))
    return Interval(row["added"], low, high, 0)


def _is_full(row: Row) -> bool:
    """Whether a mask keeps every pair and differs from full attention by no more than rounding does."""
    gap = row["relative"]
    low, high = (gap.value if end is None else end for end in (gap.low, gap.high))
    return bool(row["retained"] > FULL and low <= ROUNDING and high >= -ROUNDING)


def _nothing_added(three: list[Row]) -> str:
    """What k = 3 keeps and adds at the measured lengths."""
    added = [row["added"] for row in three]
    lengths = ", ".join(
        f"{gap.value:+.2%} ({ends(gap.low, gap.high, '+.2%')}) at {tokens:,} tokens"
        for tokens, gap in ((row["tokens"], row["relative"]) for row in three)
    )
    return (
        f"at least {min(row['retained'] for row in three):.1%} of pairs kept; {min(added):+.3f} to {max(added):+.3f} "
        f"points: {lengths}"
    )


def _figure(rows: list[Row]) -> Figure:
    series = []
    for name in sorted({row["method"] for row in rows if row.get("groups")}):
        points = [row for row in rows if row["method"] == name]
        cells = [row["relative"].through(lambda value: 100 * value) for row in points]
        series.append(Series.of_intervals(name, [row["tokens"] for row in points], cells))
    return Figure("line", "tokens", "perplexity above full attention, %", series, log_x=True, marks={"": 0.0})
