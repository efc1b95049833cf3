"""groups: what trained groups contain, compared with random centroids and permuted groups."""

from focus_explorer.exports.tables.sources import group_label
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.routing.centroids import Centroids
from paper.lab.group_content import RoutedText, group_content, routed_text
from paper.lab.lab import Lab
from paper.output.report import Claim, Column, Figure, Report, Row, Series
from paper.verdicts import judge

GROUPS = 8
SHOWN = 3  # layers whose groups are listed


def groups(lab: Lab) -> Report:
    routed = routed_held_out(lab, lab.trained(num_groups=GROUPS))
    by_random = routed_held_out(lab, lab.random(num_groups=GROUPS))
    layers, random = group_content(routed), group_content(by_random)
    order = sorted(layers, key=lambda row: -row["information"])
    shown = [order[0], order[len(order) // 2], order[-1]][: min(SHOWN, len(order))]
    return Report(
        [
            Column("layer", "layer", 0),
            Column("group", "group"),
            Column("size", "tokens", 1, percent=True),
            Column("confidence", "confidence"),
            Column("dominant", "most frequent class"),
            Column("purity", "its share", 0, percent=True),
            Column("base_rate", "its share of the text", 0, percent=True),
            Column("typical", "typical tokens"),
        ],
        [
            {
                **group,
                "layer": row["layer"],
                "group": group_label(group["group"]),
                "dominant": group["dominant_class"] or "empty",
                "typical": " ".join(repr(one["piece"]) for one in group["typical"][:6]),
            }
            for row in shown
            for group in row["groups"]
        ],
        lab.setting(
            groups=GROUPS, tokens_looked_at=layers[0]["tokens"], layers_shown="most, median and least information"
        ),
        [
            "Classes come from a closed list of English function words and the shape of a piece; nothing is fetched.",
            "A group's share of a class means nothing without the class's share of the text beside it.",
            "Random centroids also sort words into classes: hidden states of one class lie close together.",
        ],
        [*_class_claims(layers, random), *_group_claims(layers)],
        _figure(layers, random),
        {"layers": layers, "random": random},
    )


def routed_held_out(lab: Lab, centroids: Centroids) -> RoutedText:
    """The held-out text with its groups."""
    text, scale = "\n\n".join(lab.held_out), lab.scale
    sizes = {"length": scale.seq_len, "count": scale.val_sequences}
    routed = routed_text(lab.model, lab.tokenizer, centroids, text, top_k=1, **sizes)
    lab.log(f"read the groups of {sum(map(len, routed.pieces)):,} tokens")
    return routed


def _class_claims(trained: list[Row], random: list[Row]) -> list[Claim]:
    """Whether groups follow word classes, more than shuffled ones and more than those of random centroids."""
    information, by_random = ([row["information"] for row in rows] for rows in (trained, random))
    gains = mean_interval([own - baseline for own, baseline in zip(information, by_random, strict=True)])
    return [
        judge(
            "groups classes",
            all(row["information"] > row["null_high"] for row in trained),
            f"normalised information between word class and group, by layer: {min(information):.3f} to "
            f"{max(information):.3f}; shuffled {max(row['null_high'] for row in trained):.3f} at most; purity "
            f"{min(row['purity'] for row in trained):.0%} to {max(row['purity'] for row in trained):.0%}",
        ),
        judge(
            "groups trained",
            gains,
            f"normalised information beyond that of random centroids ({min(by_random):.3f} to {max(by_random):.3f}), "
            "mean over layers",
        ),
    ]


def _group_claims(trained: list[Row]) -> list[Claim]:
    """Purity, confidence and sizes of single groups."""
    filled = [group for row in trained for group in row["groups"] if group["size"] > 0]
    confidence = sum(group["confidence"] * group["size"] for group in filled) / sum(group["size"] for group in filled)
    sizes = sorted(group["size"] for row in trained for group in row["groups"])
    punctuation = [group["purity"] for group in filled if group["dominant_class"] == "punctuation"]
    purest = max(punctuation, default=0.0)
    return [
        judge(
            "groups punctuation", purest, f"the purest of {len(punctuation)} groups led by punctuation: {purest:.1%}"
        ),
        judge("groups confidence", abs(confidence - 0.89) < 0.05, f"mean largest probability {confidence:.2f}"),
        judge(
            "groups sizes",
            sizes[0] >= 0.10 and sizes[-1] <= 0.16,
            f"{sizes[0]:.1%} to {sizes[-1]:.1%} over all layers, middle half {sizes[len(sizes) // 4]:.1%} to "
            f"{sizes[3 * len(sizes) // 4]:.1%}",
        ),
    ]


def _figure(trained: list[Row], random: list[Row]) -> Figure:
    layers = [row["layer"] for row in trained]
    series = [
        Series("trained", layers, [row["information"] for row in trained]),
        Series("random centroids", layers, [row["information"] for row in random]),
        Series("shuffled, 97.5 %", layers, [row["null_high"] for row in trained], dash=True),
    ]
    return Figure("line", "layer", "normalised information, class and group", series)
