"""pairs: far pairs of two different entities or connectives that share a group."""

from typing import Any

from focus_explorer.words import ends
from focus_runtime.measure.intervals import mean_interval
from paper.lab.group_content import long_range_pairs
from paper.lab.lab import Lab
from paper.output.report import Claim, Column, Report, Row
from paper.reported import REPORTED
from paper.reports.groups import GROUPS, routed_held_out
from paper.verdicts import judge

SHOWN = 8  # pairs of each kind of words
KINDS = {"name": "entity", "conjunction": "connective"}


def pairs(lab: Lab) -> Report:
    routed = routed_held_out(lab, lab.trained(num_groups=GROUPS))
    by_random = routed_held_out(lab, lab.random(num_groups=GROUPS))
    rows, claims = [], []
    for kind, name in KINDS.items():
        found = long_range_pairs(routed, kind)
        shown = [
            {
                "kind": name,
                "layer": row["layer"],
                "later": pair["word"],
                "earlier": pair["earlier_word"],
                "distance": pair["distance"],
                "affinity": pair["affinity"],
                "same": row["same_group"],
                "every": row["same_group_of_all"],
            }
            for row in found
            for pair in row["pairs"]
        ]
        shown = sorted(shown, key=lambda row: -row["affinity"])[:SHOWN] or [
            {"kind": name, "later": "none beyond the window"}
        ]
        shown[0]["paper_pair"] = REPORTED["pairs"][name]
        rows += shown
        claims.append(_claim(name, found, long_range_pairs(by_random, kind)))
    return Report(
        [
            Column("kind", "words"),
            Column("layer", "layer", 0),
            Column("later", "word"),
            Column("earlier", "earlier word"),
            Column("distance", "tokens apart", 0),
            Column("affinity", "affinity", 3),
            Column("same", "pairs of such words in one group", 1, percent=True),
            Column("every", "pairs of any tokens", 1, percent=True),
            Column("paper_pair", "example", paper=True),
        ],
        rows,
        lab.setting(groups=GROUPS),
        [
            "Two different words, further apart than the window; a word and itself further on are left out.",
            f"The strongest {SHOWN} of all layers are shown, a choice from very many pairs, so affinities near 1 are "
            "bound to occur. The shares beside them are of all such pairs of the layer.",
        ],
        claims,
    )


def _claim(name: str, found: list[Row], by_random: list[Row]) -> Claim:
    """Whether far pairs of such words share a group more often with trained centroids than with random ones."""
    excess = [
        [row["same_group"] - row["same_group_of_all"] for row in both]
        for both in zip(found, by_random, strict=True)
        if None not in (both[0]["same_group"], both[1]["same_group"])
    ]
    named: dict[str, Any] = {"kind": name, "example": REPORTED["pairs"][name]}
    if not excess:
        return judge("pairs", None, "no two such words beyond the window in this text", **named)
    trained, random = (mean_interval(values) for values in zip(*excess, strict=True))
    evidence = "more often than any two tokens, mean over layers; with random centroids "
    evidence += f"{random.value:+.1%} ({ends(random.low, random.high, '+.1%')})"
    return judge("pairs", trained, evidence, **named)
