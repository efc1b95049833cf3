"""What groups contain: typical pieces, classes of words, and the strongest pairs beyond the window.

Classes come from word_classes.py. Every number has its null: purity the base rate of its class, mutual information
that of permuted groups, same-group pairs those of all tokens. Random centroids are the stricter null: their groups
follow the hidden states too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError, TextError
from focus_runtime.measure.contingency import (
    contingency,
    group_purity,
    normalised_information,
    permuted_tables,
    purity,
)
from focus_runtime.measure.intervals import percentile_ends
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from focus_runtime.text.tagging import CLASSES, classify
from focus_runtime.text.tokens import tokenize

Row = dict[str, Any]
Numbers = NDArray[np.int64]
PAIR_ROWS = 512  # tokens of one side whose affinities are held at once


@dataclass(frozen=True, slots=True)
class RoutedText:
    """A text in N sequences of T tokens and the groups Focus gave it, K groups.

    Attributes:
        pieces, words: text of each token and the whole word it begins ("" for none), N lists of T.
        classes: (N, T) numbers of `CLASSES`.
        probabilities: by layer, (N, T, K) float32.
        near: (T,) largest distance at which a token sees every earlier one whatever the groups, in heads without an
            exception.
    """

    pieces: list[list[str]]
    words: list[list[str]]
    classes: Numbers
    probabilities: dict[int, NDArray[np.float32]]
    near: NDArray[np.int64]


@torch.no_grad()
def routed_text(
    model: Any,
    tokenizer: Any,
    centroids: Centroids,
    text: str,
    *,
    length: int = 512,
    count: int | None = None,
    **settings: Any,
) -> RoutedText:
    """Run Focus over a text in consecutive sequences.

    Args:
        model: the frozen model, Focus not composed; tokenizer: its own.
        centroids: left as they are.
        text: held-out text.
        length: T, tokens in each sequence; what is left at the end is not used.
        count: at most so many sequences, spread evenly over the text; all when None.
        settings: passed to `compose`: top_k, window, num_sinks, assignment.

    Raises:
        TextError: the text has fewer than `length` tokens. InputError: length or count is below 1.
    """
    for name, value in (("length", length), ("count", count)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1")
    tokens = tokenize(tokenizer, text)
    first = len(tokens.added)  # tokens that every sequence begins with
    own = length - first
    whole = (len(tokens.ids) - first) // own if own > 0 else 0
    if whole == 0:
        raise TextError(
            f"the text has {len(tokens.ids)} tokens", expected=f"at least {length}", fix="give more text or less length"
        )
    chosen = np.unique(np.linspace(0, whole - 1, min(count or whole, whole)).round().astype(int))
    spans = [[*range(first), *range(first + start * own, first + (start + 1) * own)] for start in chosen]
    classified = classify(tokens.pieces)
    numbers = np.array([CLASSES.index(name) for name in classified.classes])
    probabilities: dict[int, list[NDArray[np.float32]]] = {}
    focus = compose(model, centroids, **settings)
    try:
        for span in spans:
            final_hidden(model, torch.tensor([[tokens.ids[place] for place in span]], device=input_device(model)))
            for index, assignment in focus.assignments().items():
                probabilities.setdefault(index, []).append(assignment.probabilities[0].float().cpu().numpy())
        rule = next(iter(focus.pair_rules().values()))
        near = replace(rule, sliding_window=None).near(np.arange(length))
    finally:
        focus.detach()
    return RoutedText(
        [[tokens.pieces[place] for place in span] for span in spans],
        [[classified.words[place] for place in span] for span in spans],
        np.stack([numbers[span] for span in spans]),
        {index: np.stack(rows) for index, rows in probabilities.items()},
        near,
    )


def group_content(
    routed: RoutedText, *, typical: int = 8, least_count: int = 5, shuffles: int = 100, seed: int = 0
) -> list[Row]:
    """What each layer's groups contain.

    Args:
        routed: the text with its groups.
        typical: typical pieces listed for each group.
        least_count: pieces that occur less often in a group are not typical of it.
        shuffles: shuffled assignments behind the null of the mutual information.
        seed: of the shuffles.

    Returns:
        One JSON-ready row per layer: `groups` (see `describe_groups`), `purity` (share of tokens that are of their
        group's dominant class), `base_rate` (share of the most frequent class: purity of a single group), and
        `information`, normalised mutual information of class and group, with `null_mean`, `null_low` and `null_high`
        (mean and 95 % range over shuffled assignments).
    """
    pieces = [piece for row in routed.pieces for piece in row]
    classes, rows = routed.classes.ravel(), []
    for layer, stacked in routed.probabilities.items():
        probabilities = stacked.reshape(-1, stacked.shape[-1])
        groups = describe_groups(probabilities, pieces, classes, typical=typical, least_count=least_count)
        top = probabilities.argmax(axis=1)
        counts = contingency(classes, top, (len(CLASSES), probabilities.shape[1]))
        null = shuffled_information(classes, top, probabilities.shape[1], shuffles=shuffles, seed=seed)
        low, high = percentile_ends(null)
        rows.append(
            {
                "layer": layer,
                "tokens": len(pieces),
                "purity": float(purity(counts.T)),
                "base_rate": float(counts.sum(axis=1).max() / classes.size),
                "information": float(normalised_information(counts)),
                "null_mean": float(null.mean()),
                "null_low": float(low),
                "null_high": float(high),
                "groups": groups,
            }
        )
    return rows


def describe_groups(
    probabilities: NDArray[np.float32], pieces: Sequence[str], classes: Numbers, *, typical: int, least_count: int
) -> list[Row]:
    """Size, confidence, entropy, classes and typical pieces of each group of one layer.

    Args:
        probabilities: (T, K); a token belongs to its most probable group here.
        pieces: T texts; classes: (T,) numbers of `CLASSES`.
        typical, least_count: see `group_content`.

    Returns:
        K rows: `size` (share of tokens), `confidence` (mean largest probability), `entropy` (mean, nats),
        `class_shares`, `dominant_class` with `purity` (its share in the group), `base_rate` (in the text) and `lift`
        (purity over base rate), `typical`: pieces with count and lift, ordered by count x log lift. None or empty
        for a group without tokens.
    """
    count, groups = probabilities.shape
    top, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    entropy = -(probabilities * np.log(np.clip(probabilities, 1e-30, None))).sum(axis=1)
    names, codes = np.unique(np.array(pieces, dtype=str), return_inverse=True)
    by_class = contingency(top, classes, (groups, len(CLASSES)))
    by_piece = contingency(top, codes, (groups, names.size))
    base, everywhere, pure = by_class.sum(axis=0) / count, by_piece.sum(axis=0), group_purity(by_class)
    rows: list[Row] = []
    for group, size in enumerate(by_class.sum(axis=1).tolist()):
        if size == 0:
            rows.append(_empty_group(group))
            continue
        inside = top == group
        shares = by_class[group] / size
        best = int(shares.argmax())
        rows.append(
            {
                "group": group,
                "size": size / count,
                "confidence": float(confidence[inside].mean()),
                "entropy": float(entropy[inside].mean()),
                "dominant_class": CLASSES[best],
                "purity": float(pure[group]),
                "base_rate": float(base[best]),
                "lift": float(pure[group] / base[best]),
                "class_shares": {name: float(share) for name, share in zip(CLASSES, shares, strict=True)},
                "typical": _typical(names, by_piece[group], everywhere, size / count, typical, least_count),
            }
        )
    return rows


def _empty_group(group: int) -> Row:
    missing = ("confidence", "entropy", "dominant_class", "purity", "base_rate", "lift")
    return {"group": group, "size": 0.0, **dict.fromkeys(missing), "class_shares": {}, "typical": []}


def _typical(
    names: NDArray[Any], here: Numbers, everywhere: Numbers, share: float, limit: int, least_count: int
) -> list[Row]:
    """Pieces that occur more often in a group than its size explains; `share` is that size."""
    lift = here / (everywhere * share)
    weight = np.where(here >= least_count, here * np.log(np.clip(lift, 1e-30, None)), 0.0)
    order = [int(place) for place in np.argsort(-weight, kind="stable")[:limit] if weight[place] > 0]
    return [{"piece": str(names[place]), "count": int(here[place]), "lift": float(lift[place])} for place in order]


def shuffled_information(
    classes: Numbers, groups: Numbers, num_groups: int, *, shuffles: int, seed: int
) -> NDArray[np.float64]:
    """Normalised mutual information of classes and groups when the groups are permuted over the tokens.

    Args:
        classes: (T,) numbers of `CLASSES`; groups: (T,) numbers below num_groups.
        num_groups: K.
        shuffles: permutations; seed: of them.

    Returns:
        (shuffles,).

    Raises:
        InputError: shuffles is below 1.
    """
    if shuffles < 1:
        raise InputError(f"shuffles is {shuffles}", expected="at least 1")
    generator = np.random.default_rng(seed)
    tables = permuted_tables(classes, groups, (len(CLASSES), num_groups), draws=shuffles, generator=generator)
    return np.array([float(normalised_information(table)) for table in tables])


def long_range_pairs(routed: RoutedText, *, kinds: tuple[str, ...] = ("name",), limit: int = 10) -> list[Row]:
    """The strongest same-group pairs of two different words of some classes beyond the window, by layer.

    A word and itself further on are left out: their tokens are the same, and so are their groups nearly everywhere.

    Args:
        routed: the text with its groups.
        kinds: classes of both words; "name" for entities.
        limit: pairs kept for each layer, every two words once, at their highest affinity.

    Returns:
        One JSON-ready row per layer: `pairs` (sequence, position and word of both, distance in tokens, affinity
        g_i . g_j, group; strongest first), and beyond the window the share of pairs with one most probable group among
        these words (`same_group`, None without such pairs) and among all tokens (`same_group_of_all`).

    Raises:
        InputError: a kind is unknown.
    """
    unknown = sorted(set(kinds) - set(CLASSES))
    if unknown:
        raise InputError(f"kinds has {unknown[0]!r}", expected="some of " + ", ".join(CLASSES))
    of_kind = np.isin(routed.classes, [CLASSES.index(kind) for kind in kinds])
    rows = []
    for layer, probabilities in routed.probabilities.items():
        pairs = [
            pair
            for number, stacked in enumerate(probabilities)
            for pair in _pairs_of(stacked, of_kind[number], routed.words[number], routed.near, number)
        ]
        pairs.sort(key=lambda pair: (-pair["affinity"], -pair["distance"]))
        once: dict[tuple[str, str], Row] = {}
        for pair in pairs:
            once.setdefault((pair["word"], pair["earlier_word"]), pair)
        top = probabilities.argmax(axis=-1)
        among = sum(
            (
                _same_group_of_different(row, mask, np.array(words, dtype=str), routed.near)
                for row, mask, words in zip(top, of_kind, routed.words, strict=True)
            ),
            np.zeros(2),
        )
        every = sum((_same_group(row, np.ones_like(row, dtype=bool), routed.near) for row in top), np.zeros(2))
        rows.append(
            {
                "layer": layer,
                "same_group": float(among[0] / among[1]) if among[1] else None,
                "same_group_of_all": float(every[0] / every[1]) if every[1] else None,
                "pairs": list(once.values())[:limit],
            }
        )
    return rows


def _pairs_of(
    probabilities: NDArray[np.float32],
    selected: NDArray[np.bool_],
    words: Sequence[str],
    near: NDArray[np.int64],
    sequence: int,
) -> list[Row]:
    """The strongest pair of every two words in one sequence, in blocks of rows."""
    places = np.flatnonzero(selected)
    names, codes = np.unique(np.array([words[int(place)] for place in places], dtype=str), return_inverse=True)
    top = probabilities[places].argmax(axis=1)
    best: dict[int, Row] = {}
    for start in range(0, places.size, PAIR_ROWS):
        rows = np.arange(start, min(start + PAIR_ROWS, places.size))
        affinity = probabilities[places[rows]] @ probabilities[places].T
        distance = places[rows][:, None] - places[None, :]
        different = codes[rows][:, None] != codes[None, :]
        i, j = np.nonzero((distance > near[places[rows]][:, None]) & (top[rows][:, None] == top[None, :]) & different)
        order = np.lexsort((-distance[i, j], -affinity[i, j]))
        i, j = i[order], j[order]
        pair_codes, firsts = np.unique(codes[rows[i]] * names.size + codes[j], return_index=True)
        for code, first in zip(pair_codes.tolist(), firsts, strict=True):
            row, column = i[first], j[first]
            value = float(affinity[row, column])
            if code not in best or value > best[code]["affinity"]:
                best[code] = {
                    "sequence": sequence,
                    "position": int(places[rows[row]]),
                    "word": str(names[codes[rows[row]]]),
                    "earlier_position": int(places[column]),
                    "earlier_word": str(names[codes[column]]),
                    "distance": int(distance[row, column]),
                    "affinity": value,
                    "group": int(top[column]),
                }
    return list(best.values())


def _same_group_of_different(
    top: Numbers, selected: NDArray[np.bool_], words: NDArray[np.str_], near: NDArray[np.int64]
) -> NDArray[np.float64]:
    """As `_same_group`, without pairs of one word with itself."""
    counts = _same_group(top, selected, near)
    for word in np.unique(words[selected]):
        counts -= _same_group(top, selected & (words == word), near)
    return counts


def _same_group(top: Numbers, selected: NDArray[np.bool_], near: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pairs beyond the window with one group, and all of them, among the selected tokens of one sequence."""
    onehot = (top[:, None] == np.arange(top.max() + 1)) & selected[:, None]
    counts = np.zeros((top.size + 1, onehot.shape[1]))  # of the tokens before each
    np.cumsum(onehot, axis=0, out=counts[1:])
    before = counts[(np.arange(top.size) - near).clip(0)]
    return np.array([(onehot * before).sum(), (selected * before.sum(axis=1)).sum()])
