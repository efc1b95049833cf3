"""sinks: 0 to 8 attention sinks at every k, trained with and without them."""

from focus_runtime.routing.centroids import no_groups
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells, value_of
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

COUNTS = (0, 1, 2, 3, 4, 6, 8)
TRAINED_WITH = (0, 4)
SEQUENCES = 8


def sinks(lab: Lab) -> Report:
    full = lab.full(count=SEQUENCES)
    rows: list[Row] = []
    for trained_with in TRAINED_WITH:
        trained = lab.trained(num_groups=4, num_sinks=trained_with)
        random = lab.random(num_groups=4, num_sinks=trained_with)
        for count in COUNTS:
            plans = [("none", no_groups(trained), 1)]
            plans += [(name, one, k) for k in (1, 2) for name, one in (("random", random), ("given", trained))]
            for name, centroids, top_k in plans:
                scores = lab.focus(centroids, count=SEQUENCES, top_k=top_k, num_sinks=count)
                cells = {"trained_with": trained_with, "num_sinks": count, "centroids": name, "top_k": top_k}
                cells |= quality_cells(full, scores)
                if name == "none":
                    cells |= {"dominance": None, "dominance_max": None}
                    nothing = cells
                rows.append(cells | {"gap_recovered": gap_recovered(nothing, cells, full.perplexity)})
    given = {(row["trained_with"], row["top_k"], row["num_sinks"]): row for row in rows if row["centroids"] == "given"}
    series = [
        Series(
            f"k={top_k}, trained with {start} sinks",
            list(COUNTS),
            [value_of(given[start, top_k, count]) for count in COUNTS],
        )
        for start in TRAINED_WITH
        for top_k in (1, 2)
    ]
    without, with_four, later = (given[place]["relative"].value for place in ((0, 1, 0), (4, 1, 4), (0, 1, 4)))
    return Report(
        [
            Column("trained_with", "sinks in training", 0),
            Column("num_sinks", "sinks", 0),
            Column("centroids", "centroids"),
            Column("top_k", "k", 0),
            *shared.QUALITY,
            Column("gap_recovered", "gap to no groups recovered", 0, percent=True),
        ],
        rows,
        lab.setting(sinks="varied", sequences=SEQUENCES),
        [],
        [
            judge(
                "sinks",
                with_four < 0.5 * without,
                f"k = 1: {without:+.1%} trained and used without sinks, {with_four:+.1%} trained and used with 4, "
                f"{later:+.1%} trained without and used with 4",
            )
        ],
        Figure("line", "sinks", "perplexity", series, marks={"full attention": full.perplexity}),
    )


def gap_recovered(nothing: Row, row: Row, full: float) -> float | None:
    """Share of the perplexity gap between no groups and full attention that a row closes; None where there is none."""
    gap = value_of(nothing) - full
    return (value_of(nothing) - value_of(row)) / gap if gap > 0 and row is not nothing else None
