"""Stored rows -> what the heads of every layer executed: parts of heads that share a setting.

The one place that makes rules and memberships of rows. A layer whose heads are all alike has one part. A number that
stands for a whole layer is the mean over its heads; full attention counts as one group of all tokens, as in the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.queries import fetch, rows_of
from focus_explorer.errors import InputError, NotFoundError
from focus_runtime.budget import HeadCounts
from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.mask.distances import distant_kept, mean_of_some
from focus_runtime.mask.rule import CAUSES, PairRule
from focus_runtime.store.database import Database


def placed(rows: pa.Table, layers: NDArray[np.integer], count: int, name: str) -> NDArray[Any]:
    """(L, T) values of one column, by layer, ascending, and position."""
    values = rows[name].to_numpy()
    assert values.size == layers.size * count, "a visible run is whole"
    array = np.empty((layers.size, count), dtype=values.dtype)
    array[np.searchsorted(layers, rows["layer"].to_numpy()), rows["position"].to_numpy()] = values
    return array


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Heads of one layer that share a setting."""

    number: int  # of the part in its layer, from 0
    heads: tuple[int, ...]  # key-value heads unless `by_query`; empty before 0.2, when all heads were equal
    top_k: int | None  # k, 0 for no groups; None under full attention
    rule: PairRule  # pairs that are allowed whatever their groups
    by_query: bool = False  # the numbers are of query heads, since some that share a key-value head differ

    @property
    def full(self) -> bool:
        """Whether the heads attend to every earlier token."""
        return self.top_k is None

    @property
    def weight(self) -> int:
        """Heads, for means over them."""
        return max(1, len(self.heads))

    @property
    def title(self) -> str:
        """Heads and setting in words, such as "heads 0, 2: top-k 1, window 128"."""
        kind = ("query " if self.by_query else "") + ("heads" if len(self.heads) != 1 else "head")
        which = f"{kind} {', '.join(map(str, self.heads)) or 'all'}"
        if self.full:
            return f"{which}: full attention"
        groups = f"top-k {self.top_k}" if self.top_k else "no groups"
        return f"{which}: {groups}, window {self.rule.window}"


@dataclass(frozen=True, slots=True)
class PartGroups:
    """A part with the groups its attention executed: (T,) int64 bit sets."""

    part: Part
    membership: Ints


def run_parts(config: Mapping[str, Any], rows: pa.Table) -> dict[int, tuple[Part, ...]]:
    """Parts of a run's layers by layer number."""
    parts: dict[int, list[Part]] = {}
    for row in rows.to_pylist():
        first, last = config.get("window_growth") or CONSTANT
        rule = PairRule(row["window_size"], config["num_sinks"], row["sliding_window"], (first, last))
        part = Part(row["part"], tuple(row["heads"]), row["top_k"], rule, row["query_heads"])
        parts.setdefault(row["layer"], []).append(part)
    return {layer: tuple(of_layer) for layer, of_layer in parts.items()}


def corpus_parts(config: Mapping[str, Any], layers: pa.Table) -> dict[int, tuple[Part, ...]]:
    """Parts of a corpus's layers by layer number.

    Its rows by layer have `sliding_window` unless written by 0.1, and `key_value_heads` and `query_heads` where the
    settings have a budget.
    """
    settings, parts = FocusConfig.from_json(json.dumps(config)), {}
    for row in layers.to_pylist():
        reach, heads = row.get("sliding_window"), row.get("key_value_heads")
        if row["layer"] in parts:
            continue
        groups = settings.head_groups(row["layer"], HeadCounts(heads or 1, row.get("query_heads") or heads or 1))
        parts[row["layer"]] = tuple(
            Part(
                number,
                group.heads if heads else (),
                None if group.setting.full else group.setting.top_k,
                PairRule.of(settings, settings.window if group.setting.full else group.setting.window, reach),
                group.by_query,
            )
            for number, group in enumerate(groups)
        )
    return parts


def full_layers(parts: Mapping[int, Sequence[Part]]) -> list[int]:
    """Layers of which every head attends fully, as the budget says."""
    return [layer for layer, of_layer in parts.items() if all(part.full for part in of_layer)]


def full_share(layers: Iterable[Sequence[Part]]) -> float:
    """Share of the heads that attend fully, mean over layers."""
    return fmean(sum(part.weight for part in of if part.full) / sum(part.weight for part in of) for of in layers)


def executed(database: Database, run: Mapping[str, Any], layer: int | None = None) -> dict[int, tuple[PartGroups, ...]]:
    """Parts and their memberships by layer, of one layer if it is given."""
    run_id, count = run["run_id"], run["num_tokens"]
    parts = run_parts(json.loads(run["config"]), fetch(database, "parts", run_id=run_id))
    if layer is not None and layer not in parts:
        raise NotFoundError(f"run {run_id!r} has no layer {layer}", fix="choose a layer of this run")
    usual = fetch(database, "membership", run_id=run_id, layer=layer)
    return part_groups(parts, usual, fetch(database, "head_memberships", run_id=run_id, layer=layer), count)


def part_groups(
    parts: Mapping[int, Sequence[Part]], usual: pa.Table, own: pa.Table, count: int
) -> dict[int, tuple[PartGroups, ...]]:
    """Parts with their memberships by layer, of the layers that have some.

    `usual`: layer, position and membership under the configuration's top-k; `own`: the same by part, of parts that have
    others.
    """
    layers, place = np.unique(usual["layer"].to_numpy(), return_inverse=True)
    bits = np.empty((layers.size, count), dtype=np.int64)
    bits[place, usual["position"].to_numpy()] = usual["membership"].to_numpy()
    others = head_memberships(own, count)
    return {
        number: tuple(PartGroups(part, others.get((number, part.number), row)) for part in parts[number])
        for number, row in zip(layers.tolist(), bits, strict=True)
    }


def head_memberships(rows: pa.Table, count: int) -> dict[tuple[int, int], Ints]:
    """(layer, part) -> (T,) memberships of the parts whose groups are not their layer's."""
    layer, part, position, bits = (rows[name].to_numpy() for name in ("layer", "part", "position", "membership"))
    found: dict[tuple[int, int], Ints] = {}
    for key in sorted(set(zip(layer[position == 0].tolist(), part[position == 0].tolist(), strict=True))):
        own = (layer == key[0]) & (part == key[1])
        found[key] = np.zeros(count, dtype=np.int64)
        found[key][position[own]] = bits[own]
    return found


def part_of(parts: Sequence[Part], layer: int, head: int | None) -> Part:
    """The part of a layer with one head; the first when None."""
    heads = sorted(head for part in parts for head in part.heads)
    if head is None or (head == 0 and not heads):
        return parts[0]
    if head not in heads:
        raise NotFoundError(
            f"layer {layer} has no {'query' if parts[0].by_query else 'key-value'} head {head}",
            expected=f"0 to {heads[-1]}" if heads else "none: the run was made before heads could differ",
        )
    return next(part for part in parts if head in part.heads)


def named_part(parts: Sequence[Part], layer: int, head: int | None, fix: str) -> Part:
    """The part of a layer with one head, which must be named where the heads differ."""
    if head is None and len(parts) > 1:
        raise InputError(f"the heads of layer {layer} differ ({'; '.join(part.title for part in parts)})", fix=fix)
    return part_of(parts, layer, head)


def by_top_k(parts: Sequence[PartGroups]) -> Ints:
    """(S, T) memberships of a layer by distinct top-k, in the order the runtime has them; of full heads only where all
    are full."""
    distinct = {one.part.top_k: one.membership for one in parts if not one.part.full}
    return np.stack(list(distinct.values()) or [parts[0].membership])


def mean_over_heads(values: Sequence[Any], parts: Sequence[Part]) -> Any:
    """The mean over the heads of a layer of one value or array for each part; that of a single part as it is."""
    if len(parts) == 1:
        return values[0]
    return np.average(np.asarray(values, dtype=np.float64), axis=0, weights=[part.weight for part in parts])


def sums_by_part(values: Sequence[float] | NDArray[np.float64], parts: Sequence[Part]) -> NDArray[np.float64]:
    """(P,) sums of what each query head has, over the heads of each part of a layer."""
    heads = len(values) if parts[0].by_query else sum(part.weight for part in parts)
    shared_by = max(1, len(values) // heads)  # a file that somebody wrote may have fewer rows than heads
    place = {head: number for number, part in enumerate(parts) for head in part.heads}
    own = [place.get(head // shared_by, 0) for head in range(len(values))]  # without numbers there is one part
    return np.bincount(own, weights=values, minlength=len(parts)).astype(np.float64)


def chance_beyond(sharing: Sequence[float], far: Sequence[float] | NDArray[np.float64], parts: Sequence[Part]) -> float:
    """Share of what lies beyond window and sinks of a layer that groups keep by chance.

    Every head counts with as much as it has there; all heads alike where none has any.
    """
    weights = far if sum(far) > 0 else [part.weight for part in parts]
    return float(np.average(sharing, weights=weights))


@dataclass(frozen=True, slots=True)
class PartPairs:
    """A part with the pairs, by cause, of one of its heads, and its allowed over its causal pairs."""

    part: Part
    retained_pairs: float
    pairs: dict[str, int]

    def distant_kept(self, num_tokens: int) -> float | None:
        """Share of the distant pairs of one of its heads that is kept (mask/distances.py); None where it has none."""
        return distant_kept(self.pairs["dropped"], self.part.rule, num_tokens)


def part_pairs(config: Mapping[str, Any], rows: pa.Table) -> dict[int, tuple[PartPairs, ...]]:
    """Parts with their pairs by layer number."""
    parts, found = run_parts(config, rows), dict[int, list[PartPairs]]()
    for row in rows_of(rows):
        part = parts[row["layer"]][row["part"]]
        pairs = {cause: row[cause] for cause in CAUSES}
        found.setdefault(row["layer"], []).append(PartPairs(part, row["retained_pairs"], pairs))
    return {layer: tuple(of_layer) for layer, of_layer in found.items()}


def mean_distant_kept(parts: Sequence[PartPairs], num_tokens: int) -> float | None:
    """Share of a layer's distant pairs that is kept, mean over the heads that have some; None without any."""
    return mean_of_some([one.distant_kept(num_tokens) for one in parts], [one.part.weight for one in parts])
