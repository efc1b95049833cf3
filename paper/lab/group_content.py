"""What groups contain: typical pieces, classes of words, and the strongest pairs beyond the window.

Classes come from a closed list of English function words and the shape of a piece. Every number has its null: purity
the base rate of its class, mutual information that of permuted groups, same-group pairs those of all tokens. Random
centroids are the stricter null: their groups follow the hidden states too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from focus_runtime.errors import TextError
from focus_runtime.measure.contingency import contingency, group_purity, normalised_information, permuted_tables, purity
from focus_runtime.measure.intervals import percentile_ends
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from focus_runtime.text.tagging import CLASSES, classify
from focus_runtime.text.tokens import tokenize
from paper.lab.lab import composed
from paper.output.report import Row

Numbers = NDArray[np.int64]
TYPICAL, LEAST_COUNT = 8, 5  # pieces listed for a group; those that occur less often in it are not typical
SHUFFLES = 100  # shuffled assignments behind the null of the mutual information
PAIRS = 10  # kept for each layer


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
    near: Numbers


@torch.no_grad()
def routed_text(
    model: Any, tokenizer: Any, centroids: Centroids, text: str, *, length: int, count: int, **settings: Any
) -> RoutedText:
    """Run Focus over a text in at most `count` consecutive sequences of `length` tokens, spread evenly over it.
    Raises:
        TextError: the text has fewer than `length` tokens.
    """
    tokens = tokenize(tokenizer, text)
    first = len(tokens.added)  # tokens that every sequence begins with
    own = length - first
    whole = (len(tokens.ids) - first) // own if own > 0 else 0
    if whole == 0:
        raise TextError(f"the text has {len(tokens.ids)} tokens", expected=f"at least {length}", fix="give more text")
    chosen = np.unique(np.linspace(0, whole - 1, min(count, whole)).round().astype(int))
    spans = [[*range(first), *range(first + start * own, first + (start + 1) * own)] for start in chosen]
    classified = classify(tokens.pieces)
    numbers = np.array([CLASSES.index(name) for name in classified.classes])
    probabilities: dict[int, list[NDArray[np.float32]]] = {}
    with composed(model, centroids, **settings) as focus:
        for span in spans:
            final_hidden(model, torch.tensor([[tokens.ids[place] for place in span]], device=input_device(model)))
            for index, assignment in focus.assignments().items():
                probabilities.setdefault(index, []).append(assignment.probabilities[0].float().cpu().numpy())
        rule = next(iter(focus.head_masks().values()))[0].rule
        near = replace(rule, window=focus.config.window, sliding_window=None).near(np.arange(length))
    return RoutedText(
        [[tokens.pieces[place] for place in span] for span in spans],
        [[classified.words[place] for place in span] for span in spans],
        np.stack([numbers[span] for span in spans]),
        {index: np.stack(rows) for index, rows in probabilities.items()},
        near,
    )


def group_content(routed: RoutedText) -> list[Row]:
    """What each layer's groups contain.

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
        top, shape = probabilities.argmax(axis=1), (len(CLASSES), probabilities.shape[1])
        counts = contingency(classes, top, shape)
        shuffled = permuted_tables(classes, top, shape, draws=SHUFFLES, generator=np.random.default_rng(0))
        null = np.array([float(normalised_information(table)) for table in shuffled])
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
                "groups": describe_groups(probabilities, pieces, classes),
            }
        )
    return rows


def describe_groups(probabilities: NDArray[np.float32], pieces: Sequence[str], classes: Numbers) -> list[Row]:
    """Size, confidence, classes and typical pieces of each group of one layer.

    Args:
        probabilities: (T, K); a token belongs to its most probable group here.
        pieces: T texts; classes: (T,) numbers of `CLASSES`.

    Returns:
        K rows: `size` (share of tokens), `confidence` (mean largest probability), `dominant_class` with `purity` (its
        share in the group) and `base_rate` (in the text), `typical`: pieces with count and lift, ordered by count x log
        lift. None or empty for a group without tokens.
    """
    count, groups = probabilities.shape
    top, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    names, codes = np.unique(np.array(pieces, dtype=str), return_inverse=True)
    by_class = contingency(top, classes, (groups, len(CLASSES)))
    by_piece = contingency(top, codes, (groups, names.size))
    base, everywhere, pure = by_class.sum(axis=0) / count, by_piece.sum(axis=0), group_purity(by_class)
    rows: list[Row] = []
    for group, size in enumerate(by_class.sum(axis=1).tolist()):
        row = {"group": group, "size": size / count, "typical": []}
        row |= dict.fromkeys(("confidence", "dominant_class", "purity", "base_rate"))
        if size:
            best = int(by_class[group].argmax())
            row |= {
                "confidence": float(confidence[top == group].mean()),
                "dominant_class": CLASSES[best],
                "purity": float(pure[group]),
                "base_rate": float(base[best]),
                "typical": _typical(names, by_piece[group], everywhere, size / count),
            }
        rows.append(row)
    return rows


def _typical(names: NDArray[Any], here: Numbers, everywhere: Numbers, share: float) -> list[Row]:
    """Pieces that occur more often in a group than its size explains; `share` is that size."""
    lift = here / (everywhere * share)
    weight = np.where(here >= LEAST_COUNT, here * np.log(np.clip(lift, 1e-30, None)), 0.0)
    order = [int(place) for place in np.argsort(-weight, kind="stable")[:TYPICAL] if weight[place] > 0]
    return [{"piece": str(names[place]), "count": int(here[place]), "lift": float(lift[place])} for place in order]


def long_range_pairs(routed: RoutedText, kind: str) -> list[Row]:
    """The strongest same-group pairs of two different words of a class beyond the window, by layer.

    A word and itself further on are left out: their tokens are the same, and so are their groups nearly everywhere.

    Returns:
        One JSON-ready row per layer: `pairs` (sequence, position and word of both, distance in tokens, affinity
        g_i . g_j, group; strongest first, every two words once), and beyond the window the share of pairs with one most
        probable group among these words (`same_group`, None without such pairs) and among all tokens
        (`same_group_of_all`).
    """
    of_kind = routed.classes == CLASSES.index(kind)
    rows = []
    for layer, probabilities in routed.probabilities.items():
        best: dict[tuple[str, str], Row] = {}
        among, every = np.zeros(2), np.zeros(2)
        for number, (stacked, selected, words) in enumerate(zip(probabilities, of_kind, routed.words, strict=True)):
            for pair in _pairs_of(stacked, selected, words, routed.near):
                known = best.get((pair["word"], pair["earlier_word"]))
                if known is None or _strength(pair) > _strength(known):
                    best[pair["word"], pair["earlier_word"]] = {"sequence": number, **pair}
            top, texts = stacked.argmax(axis=-1), np.array(words, dtype=str)
            among += _same_group(top, selected, routed.near)
            for word in np.unique(texts[selected]):  # without pairs of one word with itself
                among -= _same_group(top, selected & (texts == word), routed.near)
            every += _same_group(top, np.ones_like(selected), routed.near)
        rows.append(
            {
                "layer": layer,
                "same_group": float(among[0] / among[1]) if among[1] else None,
                "same_group_of_all": float(every[0] / every[1]) if every[1] else None,
                "pairs": sorted(best.values(), key=_strength, reverse=True)[:PAIRS],
            }
        )
    return rows


def _strength(pair: Row) -> tuple[float, int]:
    return pair["affinity"], pair["distance"]


def _pairs_of(
    probabilities: NDArray[np.float32], selected: NDArray[np.bool_], words: Sequence[str], near: Numbers
) -> Iterator[Row]:
    """The strongest pair of every two different words of one sequence."""
    places = np.flatnonzero(selected)
    names, codes = np.unique(np.array([words[int(place)] for place in places], dtype=str), return_inverse=True)
    top, affinity = probabilities[places].argmax(axis=1), probabilities[places] @ probabilities[places].T
    distance = places[:, None] - places[None, :]
    far = distance > near[places][:, None]
    i, j = np.nonzero(far & (top[:, None] == top[None, :]) & (codes[:, None] != codes[None, :]))
    order = np.lexsort((-distance[i, j], -affinity[i, j]))
    _, firsts = np.unique((codes[i] * names.size + codes[j])[order], return_index=True)
    for row, column in zip(i[order][firsts], j[order][firsts], strict=True):
        yield {
            "position": int(places[row]),
            "word": str(names[codes[row]]),
            "earlier_position": int(places[column]),
            "earlier_word": str(names[codes[column]]),
            "distance": int(distance[row, column]),
            "affinity": float(affinity[row, column]),
            "group": int(top[column]),
        }


def _same_group(top: Numbers, selected: NDArray[np.bool_], near: Numbers) -> NDArray[np.float64]:
    """Pairs beyond the window with one group, and all of them, among the selected tokens of one sequence."""
    onehot = (top[:, None] == np.arange(top.max() + 1)) & selected[:, None]
    counts = np.zeros((top.size + 1, onehot.shape[1]))  # of the tokens before each
    np.cumsum(onehot, axis=0, out=counts[1:])
    before = counts[(np.arange(top.size) - near).clip(0)]
    return np.array([(onehot * before).sum(), (selected * before.sum(axis=1)).sum()])
