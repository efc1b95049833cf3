"""groups: what trained groups contain, compared with random centroids and permuted groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from focus_explorer.exports.tables.sources import group_label
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.routing.centroids import Centroids
from paper.reports import paper
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series, judged
from paper.studies.group_content import RoutedText, group_content, long_range_pairs, routed_text

GROUPS = 8
PAIRS_SHOWN = 8  # of each kind of words
SHOWN = 3  # layers whose groups are listed
Rows = list[dict[str, Any]]

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
    layers, pairs = _content(lab, trained)
    random, random_pairs = _content(lab, lab.random(num_groups=GROUPS))
    order = sorted(layers, key=lambda row: -row["information"])
    shown = [order[0], order[len(order) // 2], order[-1]][: max(1, min(SHOWN, len(order)))]
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
        for row in shown
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
            "tokens looked at": layers[0]["tokens"],
            "layers shown": "most, median and least information",
        },
        [
            "Classes come from a closed list of English function words and the shape of a piece; nothing is fetched.",
            "A group's share of a class means nothing without the class's share of the text beside it.",
            "Random centroids also sort words into classes: hidden states of one class lie close together.",
        ],
        _claims(layers, random, pairs, random_pairs),
        _figure(layers, random),
        {"layers": layers, "random": random, "pairs": pairs},
    )


def _claims(trained: Rows, random: Rows, pairs: Rows, random_pairs: Rows) -> list[Claim]:
    """What the paper says of groups, decided by the trained ones and those of random centroids.

    Args:
        trained: layers of trained groups.
        random: layers of groups of random centroids.
        pairs: long-range pairs by layer, trained.
        random_pairs: the same of random centroids.
    """
    return [*_category_claims(trained, random), *_group_claims(trained), _name_claim(pairs, random_pairs)]


def _category_claims(trained: Rows, random: Rows) -> list[Claim]:
    """Whether groups follow word classes, more than shuffled ones and more than those of random centroids."""
    information = [row["information"] for row in trained]
    by_random = [row["information"] for row in random]
    gains = mean_interval([own - baseline for own, baseline in zip(information, by_random, strict=True)])
    return [
        Claim(
            "groups follow linguistic categories, without supervision",
            all(row["information"] > row["null_high"] for row in trained),
            f"normalised information between word class and group, by layer: {min(information):.3f} to "
            f"{max(information):.3f}; shuffled {max(row['null_high'] for row in trained):.3f} at most; purity "
            f"{min(row['purity'] for row in trained):.0%} to {max(row['purity'] for row in trained):.0%}",
            "margin: above the 97.5th percentile of shuffled groups in every layer",
        ),
        judged(
            "it is the trained centroids that find them",
            gains,
            above=0.0,
            form="+.3f",
            evidence="normalised information beyond that of random centroids "
            f"({min(by_random):.3f} to {max(by_random):.3f}), mean over layers",
        ),
    ]


def _group_claims(trained: Rows) -> list[Claim]:
    """Purity, confidence and sizes of single groups."""
    filled = [group for row in trained for group in row["groups"] if group["size"] > 0]
    confidence = sum(group["confidence"] * group["size"] for group in filled) / sum(group["size"] for group in filled)
    sizes = sorted(group["size"] for row in trained for group in row["groups"])
    punctuation = [group["purity"] for group in filled if group["dominant_class"] == "punctuation"]
    purest = max(punctuation, default=0.0)
    low, high = paper.GROUP_SHARE
    return [
        Claim(
            f"a punctuation group is {paper.PUNCTUATION_PURITY:.0%} pure",
            purest >= paper.PUNCTUATION_PURITY,
            f"the purest of {len(punctuation)} groups led by punctuation: {purest:.1%}",
            f"margin: one group of any layer with at least {paper.PUNCTUATION_PURITY:.0%}",
        ),
        Claim(
            f"confidence is {paper.GROUP_CONFIDENCE}",
            abs(confidence - paper.GROUP_CONFIDENCE) < 0.05,
            f"mean largest probability {confidence:.2f}",
            "margin: within 0.05",
        ),
        Claim(
            f"groups hold {low:.0%} to {high:.0%} of tokens each",
            sizes[0] >= low and sizes[-1] <= high,
            f"{sizes[0]:.1%} to {sizes[-1]:.1%} over all layers, middle half {sizes[len(sizes) // 4]:.1%} to "
            f"{sizes[3 * len(sizes) // 4]:.1%}",
            "margin: every group of every layer",
        ),
    ]


def _name_claim(pairs: Rows, random_pairs: Rows) -> Claim:
    """Whether name pairs beyond the window share a group more often than other tokens do."""
    shares = [(row["same_group"], row["same_group_of_all"]) for row in pairs if row["same_group"] is not None]
    by_random = [row["same_group"] for row in random_pairs if row["same_group"] is not None]
    evidence = (
        f"two different names beyond the window share a group more often than any tokens do, mean over layers: "
        f"{_mean(names for names, _ in shares):.1%} against {_mean(every for _, every in shares):.1%}; with random "
        f"centroids {_mean(by_random):.1%}"
    )
    best = max((pair for row in pairs for pair in row["pairs"]), key=lambda pair: pair["distance"], default=None)
    if best is not None:
        evidence += (
            f"; for example {best['word']!r} and {best['earlier_word']!r}, {best['distance']} tokens apart, affinity "
            f"{best['affinity']:.3f}"
        )
    text = "names far apart share groups (754 tokens, affinity 0.945)"
    if not shares:
        return Claim(text, None, "no two different names beyond the window")
    gain = mean_interval([names - every for names, every in shares])
    return judged(text, gain, above=0.0, evidence=evidence, form="+.1%")


def _figure(trained: Rows, random: Rows) -> Figure:
    layer_numbers = [row["layer"] for row in trained]
    series = [
        Series("trained", layer_numbers, [row["information"] for row in trained]),
        Series("random centroids", layer_numbers, [row["information"] for row in random]),
        Series("shuffled, 97.5 %", layer_numbers, [row["null_high"] for row in trained], dash=True),
    ]
    return Figure("line", "layer", "normalised information, class and group", series)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


PAIR_KINDS = {"name": "entity", "conjunction": "connective"}
PAIR_COLUMNS = [
    Column("kind", "words"),
    Column("layer", "layer", 0),
    Column("later", "word"),
    Column("earlier", "earlier word"),
    Column("distance", "tokens apart", 0),
    Column("affinity", "affinity", 3),
    Column("same", "pairs of such words in one group", 1, percent=True),
    Column("every", "pairs of any tokens", 1, percent=True),
    Column("paper_pair", "example", paper=True),
]


def pairs(lab: Lab) -> Report:
    """Far pairs of entities and of connectives that share a group, the strongest of each layer's."""
    routed = _routed(lab, lab.trained(lab.scale.seeds[0], num_groups=GROUPS))
    by_random = _routed(lab, lab.random(num_groups=GROUPS))
    rows, claims = [], []
    for kind, name in PAIR_KINDS.items():
        found = long_range_pairs(routed, kinds=(kind,))
        every = {
            (row["layer"], pair["word"], pair["earlier_word"]): (row, pair) for row in found for pair in row["pairs"]
        }
        strongest = sorted(every.values(), key=lambda both: -both[1]["affinity"])[:PAIRS_SHOWN]
        for row, pair in strongest:
            rows.append(
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
            )
        if not strongest:
            rows.append({"kind": name, "later": "none beyond the window"})
        rows[-max(1, len(strongest))]["paper_pair"] = paper.PAIRS[name]
        claims.append(_pair_claim(name, found, long_range_pairs(by_random, kinds=(kind,))))
    return Report(
        "pairs",
        "Far pairs of words that share a group (K = 8)",
        PAIR_COLUMNS,
        rows,
        {**lab.base_setting(), "groups": GROUPS, "steps": lab.scale.steps, "seeds": lab.scale.seeds[:1]},
        [
            "Two different words, further apart than the window; a word and itself further on are left out.",
            f"The strongest {PAIRS_SHOWN} of all layers are shown, a choice from very many pairs, so affinities near 1 "
            "are bound to occur. The shares beside them are of all such pairs of the layer.",
        ],
        claims,
    )


def _pair_claim(name: str, found: Rows, by_random: Rows) -> Claim:
    """Whether far pairs of such words share a group more often with trained centroids than with random ones."""
    text = f"{name} words far apart share groups ({paper.PAIRS[name]})"
    both = [
        (one["same_group"] - one["same_group_of_all"], other["same_group"] - other["same_group_of_all"])
        for one, other in zip(found, by_random, strict=True)
        if one["same_group"] is not None and other["same_group"] is not None
    ]
    if not both:
        return Claim(text, None, "no two such words beyond the window in this text")
    trained, random = (mean_interval([pair[place] for pair in both]) for place in (0, 1))
    return judged(
        text,
        trained,
        above=0.0,
        form="+.1%",
        evidence="more often than any two tokens, mean over layers; with random centroids "
        f"{random.value:+.1%} ({random.low:+.1%} to {random.high:+.1%})",
    )


def _content(lab: Lab, centroids: Centroids) -> tuple[Rows, Rows]:
    routed = _routed(lab, centroids)
    return group_content(routed), long_range_pairs(routed)


def _routed(lab: Lab, centroids: Centroids) -> RoutedText:
    """The held-out text with its groups."""
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
    return routed
