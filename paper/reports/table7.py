"""Table 7: perplexity under the hard mask, pairs kept and speed of one layer, all at the same k."""

from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells
from paper.lab.timing import layer_times, times_as_fast
from paper.output.report import Claim, Column, Figure, Report, Row, Series
from paper.reported import REPORTED
from paper.verdicts import FULL, ROUNDING, judge

TOP_KS = (1, 2, 3, 4)


def table7(lab: Lab) -> Report:
    full, length = lab.full(), lab.scale.layer_tokens
    base = {"method": "full attention", "ppl": full.perplexity, "retained": 1.0, "distant": 1.0, "speed": 1.0}
    rows: list[Row] = [base | {"paper_ppl": 42.8}, *shared.null_rows(lab)]
    for groups in (4, 8):
        rows += _rows_of(lab, groups, length)
    return Report(
        [
            shared.METHOD,
            *shared.QUALITY,
            Column("own_speed", f"one layer at {length:,} tokens, times as fast as Focus at k = 4"),
            Column("speed_retained", "that layer: pairs kept", 1, percent=True),
            Column("speed", "times as fast as torch's full attention"),
            Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
            Column("paper_retained", "pairs kept", 0, paper=True, percent=True),
        ],
        rows,
        lab.setting(
            seeds=lab.scale.seeds,
            speed=f"one layer, random balanced groups, window 128, {length:,} tokens, medians of 3",
        )
        | {"speed's interval": "from the slowest and fastest repeat"},
        [
            "Intervals: 95 %, bootstrapped over sequences and seeds; p: sign-flip test in pairs with full attention.",
            "The paper's perplexities are of GPT-2 on PG-19 (full attention 42.8) and have no sinks.",
            "At k = 4 of 4 the mask allows every pair: the same kernel, whose time the others are compared with.",
            "The timed layer has random balanced groups and its own length and window, so it keeps other pairs than "
            "the masks of the perplexities.",
        ],
        speed_quality_claims(rows, lab.recipe.num_sinks),
        _trade_off(rows),
    )


def _rows_of(lab: Lab, groups: int, length: int) -> list[Row]:
    trained = lab.trained_by_seed(num_groups=groups)
    rows, times = [], {}
    for top_k in TOP_KS:
        cells = quality_cells(lab.full(), [lab.focus(centroids, top_k=top_k) for centroids in trained])
        times[top_k] = layer_times(lab, groups, top_k, length)
        row = {"method": f"Focus K={groups}, k={top_k}", "k": top_k, "groups": groups, **cells}
        row |= {"speed": times[top_k]["full_over_focus"], "speed_retained": times[top_k]["retained_pairs"]}
        if groups == 4:
            row |= {"paper_ppl": REPORTED["speed_quality"][top_k], "paper_retained": REPORTED["kept"][top_k]}
        rows.append(row)
    for row in rows:
        row["own_speed"] = times_as_fast(times[4]["focus_ms"], times[row["k"]]["focus_ms"])
    return rows


def speed_quality_claims(rows: list[Row], sinks: int) -> list[Claim]:
    """What the paper claims of K = 4 at each k."""
    one, two, three, every = (row for row in rows if row.get("groups") == 4)
    excess = three["ppl"].value / rows[0]["ppl"] - 1
    return [
        judge("table7 gain", two["relative"], f"{two['retained']:.0%} of pairs kept, p = {two['p']:.3f}"),
        judge(
            "table7 speed",
            two["own_speed"],
            f"times as fast as the same mask with every pair allowed (k = 4), {_by_pairs(two, every)}; "
            f"{two['speed']:.2f} times as fast as torch's attention, another kernel",
        ),
        judge("table7 k = 1", one["relative"], f"{sinks} sinks, {one['distant']:.0%} of distant pairs kept"),
        judge(
            "table7 k = 3",
            abs(excess) < ROUNDING and three["retained"] > FULL,
            f"{excess:+.3%} at {three['retained']:.1%} of pairs kept: full attention",
        ),
    ]


def _by_pairs(row: Row, every: Row) -> str:
    """How much of a timed layer's speed against that of all pairs the pairs it keeps account for, in words."""
    kept = row["speed_retained"] / every["speed_retained"]
    words = f"of which the {kept:.1%} of pairs that the timed layer keeps account for {1 / kept:.2f}"
    return f"{words} and something else for the rest" if row["own_speed"].value > 1 / kept else f"{words} at most"


def _trade_off(rows: list[Row]) -> Figure:
    """Paired differences: the spread between sequences would hide them in perplexities as they are."""
    series = []
    for groups in (4, 8):
        points = [row for row in rows if row.get("groups") == groups]
        cells = [row["relative"].through(lambda value: 100 * value) for row in points]
        series.append(Series.of_intervals(f"Focus K={groups}", [100 * row["retained"] for row in points], cells))
    marks = {"full attention": 0.0} | {row["method"]: 100 * row["relative"].value for row in rows[1:3]}
    return Figure("line", "pairs kept, %", "perplexity above full attention, %", series, marks=marks)
