"""A corpus read back from its Parquet files, in place, by DuckDB: for statistics, summaries and exports.

Rows are ordered by document and position everywhere, so arrays of different layers and the tokens line up. Memory stays
within a few layers of the corpus: `each_layer` reads as many at once as `rows_at_once` allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, corpus_parts
from focus_explorer.errors import NotFoundError
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.distances import distant_pairs
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.intervals import Interval, mean_interval
from focus_runtime.run.folder import CorpusFolder
from focus_runtime.store.corpora import corpus_row
from focus_runtime.store.database import Database


@dataclass(frozen=True, slots=True)
class DistantPairs:
    """Distant pairs (see mask/distances.py) of one head of each of P parts of heads in D documents."""

    kept: Floats  # (D, P), parts layer by layer in the order of their numbers
    pairs: Floats  # (D, P)
    heads: Floats  # (P,) how many each part has
    layers: NDArray[np.int64]  # (P,) numbers

    @classmethod
    def of(cls, parts: Mapping[int, Sequence[Part]], dropped: Floats, tokens: NDArray[np.int64]) -> DistantPairs:
        """Those of documents with (D,) tokens, of whose pairs one head of each part drops (D, P)."""
        columns = [(layer, part) for layer, of_layer in parts.items() for part in of_layer]
        lengths, place = np.unique(tokens, return_inverse=True)
        pairs = np.empty((lengths.size, len(columns)))
        unreached = np.empty_like(pairs)
        for rule in {part.rule for _, part in columns}:
            own = [number for number, (_, part) in enumerate(columns) if part.rule == rule]
            pairs[:, own] = [[distant_pairs(rule, count)] for count in lengths.tolist()]
            unreached[:, own] = [[rule.unreached(count)] for count in lengths.tolist()]
        return cls(
            pairs[place] - (dropped - unreached[place]),
            pairs[place],
            np.array([part.weight for _, part in columns], dtype=np.float64),
            np.array([layer for layer, _ in columns]),
        )

    def share_kept(self, resamples: int) -> Interval | None:
        """Share kept of all documents together, mean over the heads that have distant pairs and over their layers.

        None: there are none. The interval is over documents, each standing for how far it moves the share.
        """
        documents, parts = self.pairs.any(axis=1), self.pairs.any(axis=0)
        if not parts.any():
            return None
        kept, pairs, layers = self.kept[documents][:, parts], self.pairs[documents][:, parts], self.layers[parts]
        _, place = np.unique(layers, return_inverse=True)
        of_layer = np.bincount(place, weights=self.heads[parts])
        weights = self.heads[parts] / of_layer[place] / of_layer.size
        shares = kept.sum(axis=0) / pairs.sum(axis=0)
        moved = (kept - shares * pairs) / pairs.mean(axis=0) @ weights
        return mean_interval(shares @ weights + moved, resamples=resamples)


ROWS_AT_ONCE = 4_000_000
RESAMPLES = 2_000  # of documents; with a thousand of them 10,000 take longer than reading the files
MODES = ("full", "focus", "random")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """One layer over all N tokens of a corpus, documents in order of their numbers, positions in order."""

    layer: int
    top_group: NDArray[np.int32]  # (N,)
    membership: NDArray[np.int64]  # (N,) bit sets of the configuration's top-k
    confidence: NDArray[np.float32]  # (N,)
    entropy: NDArray[np.float32]  # (N,)
    random_top_group: NDArray[np.int32] | None  # None without the baseline
    random_membership: NDArray[np.int64] | None
    others: dict[int, NDArray[np.int64]]  # `membership` by any other top-k that a head has
    random_others: dict[int, NDArray[np.int64]]

    def executed(self, part: Part) -> NDArray[np.int64]:
        """(N,) bit sets that heads of this layer executed; one group of all tokens where their attention is full."""
        if part.top_k is None:
            return np.ones_like(self.membership)
        return self.others.get(part.top_k, self.membership)


class CorpusData:
    """The files of one corpus; `row` is its line of the register, with its JSON columns as objects.

    A NotFoundError if there is no such corpus, or its folder holds no documents.
    """

    def __init__(self, database: Database, corpus_id: str) -> None:
        row = corpus_row(database, corpus_id)
        if row is None:
            raise NotFoundError(f"there is no corpus {corpus_id!r}", fix="see `focus-explorer corpora`")
        self.row = row
        self.folder = CorpusFolder.of(row["folder"], corpus_id)
        self._numbers = self.folder.numbers()
        if not self._numbers:
            skipped = "; ".join(f"{each['name']}: {each['reason']}" for each in row["skipped"][:3])
            raise NotFoundError(
                f"the corpus {corpus_id} has no documents in {row['folder']}" + (f" ({skipped})" if skipped else ""),
                expected="at least one that could be analysed",
            )

    def query(self, sql: str, table: str, parameters: tuple[Any, ...] = ()) -> pa.Table:
        """Rows of a SELECT over one table's files."""
        connection = duckdb.connect()
        try:
            files = "read_parquet(?, hive_partitioning = true, union_by_name = true)"
            given = [self.folder.files(table, self._numbers), *parameters]
            return connection.sql(f"WITH rows AS (SELECT * FROM {files}) {sql}", params=given).to_arrow_table()
        finally:
            connection.close()

    def documents(self) -> pa.Table:
        """One row for each document, in order of `document`, its number: the columns of document.parquet."""
        return self.query("SELECT * EXCLUDE (run) FROM rows ORDER BY document", "document")

    def tokens(self) -> pa.Table:
        """document, position, piece, pos, dep, sentence, nll_full and nll_focus of all N tokens in order."""
        return self.query(
            "SELECT document, position, piece, pos, dep, sentence, nll_full, nll_focus FROM rows "
            "ORDER BY document, position",
            "tokens",
        )

    def layers(self) -> pa.Table:
        """document, layer, dominance, retained_pairs and pair counts by cause, ordered by document and layer."""
        return self.query("SELECT * EXCLUDE (run) FROM rows ORDER BY document, layer", "layers")

    @cached_property
    def layer_numbers(self) -> list[int]:
        """Layers with groups."""
        rows = self.query("SELECT DISTINCT layer FROM rows ORDER BY layer", "layers")
        return [int(value) for value in rows["layer"].to_pylist()]

    @cached_property
    def parts(self) -> dict[int, tuple[Part, ...]]:
        """Heads of each layer by the setting they executed."""
        return corpus_parts(self.row["config"], self.layers())

    def _distant(self, layers: pa.Table, tokens: NDArray[np.int64]) -> DistantPairs:
        """Distant pairs by document and part of heads.

        Documents of earlier versions have no `dropped_by_part`: where heads differ, pairs are counted from the groups.
        """
        documents, stored = tokens.size, "dropped_by_part" in layers.column_names
        if stored and not layers["dropped_by_part"].null_count:
            values = pc.list_flatten(layers["dropped_by_part"]).to_numpy()
        elif all(len(of_layer) == 1 for of_layer in self.parts.values()):
            values = layers["dropped"].to_numpy()
        else:
            values = self._dropped_again(np.cumsum(tokens)[:-1])
        return DistantPairs.of(self.parts, _by_document(values, documents), tokens)

    def _dropped_again(self, borders: NDArray[np.int64]) -> NDArray[np.int64]:
        """(D, P) pairs that one head of each part drops, counted from the groups of documents that begin at borders."""
        dropped = [
            pair_totals(np.ascontiguousarray(bits)[None], [part.rule])[0, CAUSES.index("dropped")]
            for layer in self.each_layer()
            for part in self.parts[layer.layer]
            for bits in np.split(layer.executed(part), borders)
        ]
        return np.array(dropped).reshape(-1, borders.size + 1).T

    @cached_property
    def num_tokens(self) -> int:
        """N, tokens of all documents."""
        return int(self.query("SELECT sum(num_tokens) AS n FROM rows", "document")["n"][0].as_py())

    def layer(self, layer: int) -> LayerGroups:
        """One layer, or a NotFoundError if it has no groups."""
        if layer not in self.layer_numbers:
            raise NotFoundError(f"corpus {self.row['corpus_id']} has no layer {layer}", fix="choose one of its layers")
        return self._read(layer, layer)[0]

    def each_layer(self, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[LayerGroups]:
        """All layers in order; files are opened once for as many layers as `rows_at_once` rows hold."""
        at_once = max(1, rows_at_once // self.num_tokens)
        numbers = self.layer_numbers
        for start in range(0, len(numbers), at_once):
            part = numbers[start : start + at_once]
            yield from self._read(part[0], part[-1])

    def _read(self, first: int, last: int) -> list[LayerGroups]:
        own = self.row["config"]["top_k"]
        ks = sorted({part.top_k for parts in self.parts.values() for part in parts if part.top_k not in (None, own)})
        more = "".join(f", membership_top_{k}, random_membership_top_{k}" for k in ks)
        table = self.query(
            "SELECT layer, top_group, membership, confidence, entropy, random_top_group, random_membership"
            f"{more} FROM rows WHERE layer BETWEEN ? AND ? ORDER BY layer, document, position",
            "assignments",
            (first, last),
        )
        columns: dict[str, Any] = {}
        for name in table.column_names:
            column = table[name]
            columns[name] = None if column.null_count else column.to_numpy()
        layers = columns.pop("layer")
        others = {k: columns.pop(f"membership_top_{k}") for k in ks}
        random = {k: values for k in ks if (values := columns.pop(f"random_membership_top_{k}")) is not None}
        borders = np.flatnonzero(np.diff(layers, prepend=layers[0] - 1, append=layers[-1] + 1))
        return [
            LayerGroups(
                layer=int(layers[start]),
                **{name: _part(values, start, stop) for name, values in columns.items()},
                others={k: values[start:stop] for k, values in others.items()},
                random_others={k: values[start:stop] for k, values in random.items()},
            )
            for start, stop in pairwise(borders.tolist())
        ]

    def summary(self) -> dict[str, Any]:
        """Pooled numbers with 95 % intervals from a bootstrap over documents, JSON-ready.

        Perplexities weight documents by their scored tokens and shares of pairs by their pairs, so each is that of all
        documents together, mean over layers with groups (and over heads, of distant pairs those that have some).
        `dominance` is the share of the largest group over the whole corpus, and `document_dominance` the mean of the
        documents' own; both mean over layers.
        """
        documents, layers = self.documents(), self.layers()
        tokens = documents["num_tokens"].to_numpy().astype(np.float64)
        return {
            "corpus_id": self.row["corpus_id"],
            "name": self.row["name"],
            "source": self.row["source"],
            "folder": str(self.folder.path),
            "model": self.row["model_id"],
            "centroids": self.row["centroids_name"],
            "config": self.row["config"],
            "settings": self.row["settings"],
            "status": self.row["status"],
            "documents": documents.num_rows,
            "skipped": self.row["skipped"],
            "num_tokens": int(tokens.sum()),
            "scored_tokens": int((tokens - 1).sum()),
            "unit": "document",
            **_losses(documents, tokens - 1),
            **_pairs(layers, documents.num_rows, self._distant(layers, documents["num_tokens"].to_numpy())),
            **self._dominance(layers, documents.num_rows),
            "model_seconds": float(documents["model_seconds"].to_numpy().sum()),
        }

    def _dominance(self, layers: pa.Table, documents: int) -> dict[str, Any]:
        counts = self.query("SELECT layer, top_group, count(*) AS n FROM rows GROUP BY ALL", "assignments")
        largest: dict[int, int] = {}
        for layer, count in zip(counts["layer"].to_pylist(), counts["n"].to_pylist(), strict=True):
            largest[layer] = max(largest.get(layer, 0), count)
        own = _by_document(layers["dominance"].to_numpy(), documents).mean(axis=1)
        return {
            "dominance": float(np.mean(list(largest.values())) / self.num_tokens),
            "document_dominance": _share(_document_interval(own)),
        }

    def per_document(self) -> list[dict[str, Any]]:
        """The documents with their pairs kept and largest group, mean over layers, JSON-ready."""
        documents, layers = self.documents(), self.layers()
        kept = _by_document(layers["retained_pairs"].to_numpy(), documents.num_rows).mean(axis=1)
        largest = _by_document(layers["dominance"].to_numpy(), documents.num_rows).mean(axis=1)
        return [
            row | {"notes": json.loads(row["notes"]), "retained_pairs": float(pairs), "dominance": float(share)}
            for row, pairs, share in zip(documents.to_pylist(), kept, largest, strict=True)
        ]


def _document_interval(values: Floats, weights: Floats | None = None) -> Interval:
    return mean_interval(values, weights, resamples=RESAMPLES)


def _part(values: Any, start: int, stop: int) -> Any:
    return None if values is None else values[start:stop]


def _losses(documents: pa.Table, scored: Floats) -> dict[str, Any]:
    loss: dict[str, Floats] = {}
    for mode in MODES:
        column = documents[f"perplexity_{mode}"]
        if not column.null_count:
            loss[mode] = np.log(column.to_numpy())
    intervals: dict[str, Any] = {
        "perplexity": {
            mode: _numbers(_document_interval(values, scored).through(math.exp)) for mode, values in loss.items()
        }
    }
    intervals["loss_difference"] = _numbers(_document_interval(loss["focus"] - loss["full"], scored))
    if "random" in loss:
        intervals["loss_difference_random"] = _numbers(_document_interval(loss["random"] - loss["full"], scored))
    return intervals


def _pairs(layers: pa.Table, documents: int, distant: DistantPairs) -> dict[str, Any]:
    counts = {cause: _by_document(layers[cause].to_numpy(), documents).mean(axis=1) for cause in CAUSES}
    total = np.sum(list(counts.values()), axis=0)
    kept = distant.share_kept(RESAMPLES)
    return {
        "retained_pairs": _share(_document_interval(1 - counts["dropped"] / total, total)),
        "distant_pairs_kept": None if kept is None else _share(kept),
    }


def _by_document(values: NDArray[Any], documents: int) -> Floats:
    """(D, L) from rows ordered by document and layer."""
    return values.reshape(documents, -1).astype(np.float64)


def _numbers(interval: Interval) -> dict[str, float | int | None]:
    return interval.to_dict() | {"documents": interval.units}


def _share(interval: Interval) -> dict[str, float | int | None]:
    return _numbers(interval.within(0.0, 1.0))
