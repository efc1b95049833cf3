"""Pairs as tables: kept by distance with every baseline, the strongest links, and the strongest long-range pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.describe import Layer
from focus_explorer.statistics.layer_measures import Bins, PairCounts
from focus_explorer.statistics.resample import Estimate, Resampler, held, mean_of, ratio
from focus_explorer.statistics.rows import schema_of
from focus_explorer.statistics.sample import Sample
from focus_runtime.mask.rule import group_label

PAIRS_SHOWN, MOST_WORDS = 20, 1200
NAMED = ("PROPN", "NOUN", "name", "content")  # parts of speech and word classes of content words


def distances_table(sample: Sample, layers: list[Layer], resampler: Resampler, bins: Bins) -> pa.Table:
    """Share of causal pairs kept in each range of distances, by layer and as the mean over layers (layer null)."""
    rows: list[dict[str, Any]] = []
    pairs = [_sums(layer.focus.pairs) for layer in layers]
    of_focus = [_shares(layer.focus.pairs, resampler) for layer in layers]
    of_random = [_shares(layer.random.pairs, resampler) for layer in layers if layer.random is not None]
    for place, layer in enumerate(layers):
        random = of_random[place] if of_random else None
        rows += _rows(bins, pairs[place], of_focus[place], random, layer.number, sample, resampler)
    means, random_means = ([mean_of(list(cell)) for cell in zip(*one, strict=True)] for one in (of_focus, of_random))
    rows += _rows(bins, np.mean(pairs, axis=0), means, random_means or None, None, sample, resampler)
    schema = schema_of(
        "layer:int32 first:int64 last:int64 pairs:int64 kept share low high shuffled random random_low random_high "
        "window_only units:int64 unit:string"
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _sums(part: PairCounts) -> NDArray[np.float64]:
    """(4, B) all pairs, those that window and sinks keep, those the mask keeps, and those permuted groups keep."""
    return np.stack([values.sum(axis=0) for values in (part.pairs, part.ruled, part.kept, part.by_chance())])


def _shares(part: PairCounts, resampler: Resampler) -> list[Estimate]:
    """Share kept in each range of distances."""
    scale = max(float(part.pairs.max()), 1.0)  # 32 bits count sums of pairs only so far
    drawn = resampler.draw(np.concatenate([part.kept, part.pairs], axis=1) / scale)
    cells = part.pairs.shape[1]
    replicates = ratio(drawn[:, :cells], drawn[:, cells:])
    values = ratio(part.kept.sum(axis=0), part.pairs.sum(axis=0))
    held_by = held(part.pairs)
    return [Estimate(float(values[n]), replicates[:, n], held_by=int(held_by[n])) for n in range(cells)]


def _rows(
    bins: Bins,
    sums: NDArray[np.float64],
    shares: Sequence[Estimate],
    random: Sequence[Estimate] | None,
    layer: int | None,
    sample: Sample,
    resampler: Resampler,
) -> list[dict[str, Any]]:
    rows = []
    pairs, ruled, kept, by_chance = sums
    for number in range(bins.first.size):
        low, high = shares[number].interval(resampler.count)
        by_rule = float(ruled[number] / pairs[number])
        row = {
            "layer": layer,
            "first": int(bins.first[number]),
            "last": int(bins.last[number]),
            "pairs": int(pairs[number]),
            "kept": float(kept[number]),
            "share": shares[number].value,
            "low": low,
            "high": high,
            "shuffled": float(by_chance[number] / pairs[number]),
            "window_only": by_rule,
            "units": resampler.count,
            "unit": sample.unit,
        }
        if random is not None:
            ends = random[number].interval(resampler.count)
            row |= {"random": random[number].value, "random_low": ends[0], "random_high": ends[1]}
        rows.append(row)
    return rows


def links_table(links: pa.Table, pieces: Sequence[str]) -> pa.Table:
    """The strongest links of full attention that the mask keeps and drops, with their pieces, distance and affinity.

    `links` are the rows of the query `all_attention_links`; empty until attention was measured.
    """
    query, key = links["query"].to_numpy(), links["key"].to_numpy()
    return pa.table(
        {
            **{name: links[name] for name in ("layer", "head", "kind", "rank")},
            "query": query,
            "key": key,
            "query_piece": pa.array([pieces[i] for i in query], pa.string()),
            "key_piece": pa.array([pieces[i] for i in key], pa.string()),
            "distance": query - key,
            **{name: links[name] for name in ("probability", "affinity")},
        }
    )


def content_words(sample: Sample) -> NDArray[np.int64]:
    """Positions of the nouns and names that long-range pairs are made of: at most `MOST_WORDS`, evenly spaced."""
    scheme = sample.schemes.get("pos") or sample.schemes["word"]
    named = np.isin(scheme.codes, [number for number, name in enumerate(scheme.names) if name in NAMED])
    places = np.flatnonzero(named & np.array([len(name.strip()) > 2 for name in sample.pieces])[sample.piece])
    if places.size > MOST_WORDS:
        places = places[np.linspace(0, places.size - 1, MOST_WORDS).round().astype(int)]
    return places


def long_range_rows(
    sample: Sample, layer: int, places: NDArray[np.int64], chosen: NDArray[np.float32]
) -> list[dict[str, Any]]:
    """The strongest pairs of some words beyond every head's window that share their most probable group in one layer.

    Every two pieces are listed once, at their highest affinity g_i . g_j.

    Args:
        places: (n,) positions of the words; chosen: (n, K) their probabilities in the layer.
    """
    rules = [part.rule for part in sample.parts[sample.layers.index(layer)] if not part.full]
    if not rules:  # every head attends fully: no pair needs a group
        return []
    names = {int(place): sample.pieces[sample.piece[place]] for place in places}
    top = chosen.argmax(axis=1) if places.size else np.zeros(0, dtype=int)
    affinity = chosen @ chosen.T
    same_document = sample.starts[places][:, None] == sample.starts[places][None, :]
    apart, own = places[:, None] - places[None, :], places - sample.starts[places]
    near = np.max([rule.near(own) for rule in rules], axis=0)[:, None]
    distant = (apart > near) & (apart <= rules[0].farthest(sample.num_tokens))
    affinity[~(distant & same_document & (top[:, None] == top[None, :]))] = -1.0
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for i, j in zip(*np.unravel_index(_largest(affinity.ravel(), 50 * PAIRS_SHOWN), affinity.shape), strict=True):
        if affinity[i, j] < 0 or len(rows) == PAIRS_SHOWN:
            break
        query, key = int(places[i]), int(places[j])
        pair = (names[query].strip(), names[key].strip())
        if pair in seen or pair[::-1] in seen:
            continue
        seen.add(pair)
        rows.append(
            {
                "layer": layer,
                "rank": len(rows) + 1,
                "query": query,
                "key": key,
                "query_piece": names[query],
                "key_piece": names[key],
                "distance": query - key,
                "affinity": float(affinity[i, j]),
                "group": group_label(int(top[j])),
            }
        )
    return rows


def _largest(values: NDArray[np.float32], limit: int) -> NDArray[np.int64]:
    """Places of the largest values, in order, the earlier one first where two are equal."""
    if values.size > limit:
        least = np.partition(values, values.size - limit)[values.size - limit]
        places = np.flatnonzero(values >= least)
    else:
        places = np.arange(values.size)
    return places[np.argsort(-values[places], kind="stable")][:limit]
