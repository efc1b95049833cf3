"""groups: what trained groups contain, compared with random centroids and permuted groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from focus_explorer.exports.tables.sources import group_label
from focus_explorer.reproduce import paper
from focus_explorer.reproduce.lab import Lab
from focus_explorer.reproduce.report import Claim, Column, Figure, Report, Series, decided
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.routing.centroids import Centroids
from focus_runtime.studies.group_content import group_content, long_range_pairs, routed_text

GROUPS = 8
SHOWN = 3  # layers whose groups are listed
COLUMNS = [
    Column("layer", "layer", 0),
    Column("group", "group"),
    Column("size", "tokens", 1, percent=True),
    Column("confidence", "confidence"),
    Column("dominant", "most frequent class"),
    Column("purity", "its share", 0, percent=True),
    Column("base_rate", "its share of the text", 0, percent=True),
    Column("typical", "typical tokens"),
]


def groups(lab: Lab) -> Report:
    """Content of the groups in the layers where it is most and least pronounced, and long-range pairs."""
    trained = lab.trained(lab.scale.seeds[0], num_groups=GROUPS)
    found, pairs = _content(lab, trained)
    random, random_pairs = _content(lab, lab.random(num_groups=GROUPS))
    order = sorted(found, key=lambda row: -row["information"])
    layers = [order[0], order[len(order) // 2], order[-1]][: max(1, min(SHOWN, len(order)))]
    rows = [
        {
            "layer": row["layer"],
            "group": group_label(group["group"]),
            "size": group["size"],
            "confidence": group.get("confidence"),
            "dominant": group.get("dominant_class") or "empty",
            "purity": group.get("purity"),
            "base_rate": group.get("base_rate"),
            "typical": " ".join(repr(t["piece"]) for t in (group.get("typical") or [])[:6]),
        }
        for row in layers
        for group in row["groups"]
    ]
    return Report(
        "groups",
        "What the groups contain (K = 8)",
        COLUMNS,
        rows,
        {
            **lab.base_setting(),
            "groups": GROUPS,
            "steps": lab.scale.steps,
            "seeds": lab.scale.seeds[:1],
            "tokens looked at": found[0]["tokens"],
            "layers shown": "most, median and least information",
        },
        [
            "Classes come from a closed list of English function words and the shape of a piece; nothing is fetched.",
            "A group's share of a class means nothing without the class's share of the text beside it.",
            "Random centroids also sort words into classes: hidden states of one class lie close together.",
        ],
        _claims(found, random, pairs, random_pairs),
        _figure(found, random),
        {"layers": found, "random": random, "pairs": pairs},
    )


def _claims(
    found: list[dict[str, Any]],
    random: list[dict[str, Any]],
    pairs: list[dict[str, Any]],
    random_pairs: list[dict[str, Any]],
) -> list[Claim]:
    """What the paper says of groups, decided by the trained ones and those of random centroids.

    Args:
        found: layers of trained groups.
        random: layers of groups of random centroids.
        pairs: long-range pairs by layer, trained.
        random_pairs: the same of random centroids.
    """
    order = sorted(found, key=lambda row: -row["information"])
    filled = [g for row in found for g in row["groups"] if g["size"] > 0]
    confidence = sum(g["confidence"] * g["size"] for g in filled) / sum(g["size"] for g in filled)
    sizes = sorted(g["size"] for row in found for g in row["groups"])
    marks = [g for g in filled if g["dominant_class"] == "punctuation"]
    purest = max(marks, key=lambda g: g["purity"])["purity"] if marks else 0.0
    shares = [(row["same_group"], row["same_group_of_all"]) for row in pairs if row["same_group"] is not None]
    gains = mean_interval(
        [row["information"] - baseline["information"] for row, baseline in zip(found, random, strict=True)]
    )
    by_random = [row["same_group"] for row in random_pairs if row["same_group"] is not None]
    best = max((pair for row in pairs for pair in row["pairs"]), key=lambda pair: pair["distance"], default=None)
    low, high = paper.GROUP_SHARE
    return [
        Claim(
            "groups follow linguistic categories, without supervision",
            all(row["information"] > row["null_high"] for row in found),
            f"normalised information between word class and group, by layer: {order[-1]['information']:.3f} to "
            f"{order[0]['information']:.3f}; shuffled {max(r['null_high'] for r in found):.3f} at most; purity "
            f"{min(r['purity'] for r in found):.0%} to {max(r['purity'] for r in found):.0%}",
        ),
        Claim(
            "it is the trained centroids that find them",
            decided(gains, above=0.0),
            f"normalised information beyond that of random centroids ({min(r['information'] for r in random):.3f} to "
            f"{max(r['information'] for r in random):.3f}), mean over layers: {gains.value:+.3f} ({gains.low:+.3f} to "
            f"{gains.high:+.3f})",
        ),
        Claim(
            f"a punctuation group is {paper.PUNCTUATION_PURITY:.0%} pure",
            purest >= paper.PUNCTUATION_PURITY,
            f"the purest of {len(marks)} groups led by punctuation: {purest:.1%}",
        ),
        Claim(
            f"confidence is {paper.GROUP_CONFIDENCE}",
            abs(confidence - paper.GROUP_CONFIDENCE) < 0.05,
            f"mean largest probability {confidence:.2f}",
        ),
        Claim(
            f"groups hold {low:.0%} to {high:.0%} of tokens each",
            sizes[0] >= low and sizes[-1] <= high,
            f"{sizes[0]:.1%} to {sizes[-1]:.1%} over all layers, middle half {sizes[len(sizes) // 4]:.1%} to "
            f"{sizes[3 * len(sizes) // 4]:.1%}",
        ),
        Claim(
            "names far apart share groups (754 tokens, affinity 0.945)",
            sum(a > b for a, b in shares) > len(shares) / 2 if shares else None,
            f"name pairs beyond the window share a group more often than any tokens do in "
            f"{sum(a > b for a, b in shares)} of {len(shares)} layers ({_mean(a for a, _ in shares):.1%} against "
            f"{_mean(b for _, b in shares):.1%}; with random centroids {_mean(by_random):.1%})"
            + (
                ""
                if best is None
                else f"; for example {best['word']!r} and {best['earlier_word']!r}, "
                f"{best['distance']} tokens apart, affinity {best['affinity']:.3f}"
            ),
        ),
    ]


def _figure(found: list[dict[str, Any]], random: list[dict[str, Any]]) -> Figure:
    layer_numbers = [row["layer"] for row in found]
    series = [
        Series("trained", layer_numbers, [row["information"] for row in found]),
        Series("random centroids", layer_numbers, [row["information"] for row in random]),
        Series("shuffled, 97.5 %", layer_numbers, [row["null_high"] for row in found], dash=True),
    ]
    return Figure("line", "layer", "normalised information, class and group", series)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else math.nan


def _content(lab: Lab, centroids: Centroids) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    routed = routed_text(
        lab.model,
        lab.tokenizer,
        centroids,
        "\n\n".join(lab.held_out),
        length=lab.scale.seq_len,
        count=lab.scale.val_sequences,
        top_k=1,
    )
    lab.log(f"read the groups of {sum(map(len, routed.pieces)):,} tokens")
    return group_content(routed), long_range_pairs(routed)
