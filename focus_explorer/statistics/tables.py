"""The statistics of a run as tables, by name; screen, exports, reports and bundles all take them from here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from focus_explorer.data.corpus import CorpusData
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.statistics import NAMES, OF_CORPUS
from focus_explorer.statistics.agreement import between_samples, layer_agreement_table
from focus_explorer.statistics.describe import Layer, describe, measure
from focus_explorer.statistics.groups import categories_table, characteristic_table
from focus_explorer.statistics.layer_measures import Bins
from focus_explorer.statistics.pair_tables import content_words, distances_table, links_table, long_range_rows
from focus_explorer.statistics.resample import Resampler
from focus_explorer.statistics.rows import schema_of
from focus_explorer.statistics.sample import Sample, corpus_sample, run_sample, stored_measurements
from focus_runtime.store.corpora import corpus_row
from focus_runtime.store.database import Database

KEPT = 2
OF_SAMPLE = {  # tables that need the sample alone
    "characteristic": characteristic_table,
    "categories": categories_table,
    "agreement": layer_agreement_table,
}


class RunStatistics:
    """One run's sample and what was measured of it, computed once for all tables.

    A corpus gives its own sample and has no tables `links` and `pairs`.
    """

    def __init__(self, database: Database, run_id: str, sample: Sample | None = None) -> None:
        self.database, self.run_id = database, run_id
        self.sample: Sample = run_sample(database, run_id) if sample is None else sample
        self._measured: tuple[list[Layer], Resampler, Bins] | None = None
        self._tables: dict[str, pa.Table] = {}

    def measured(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Any:
        """Layers, resampler and bins of distances, measured by the first call."""
        if self._measured is None:
            self._measured = measure(self.sample, progress=progress)
        return self._measured

    def table(self, name: str) -> pa.Table:
        """One of `NAMES`."""
        if name not in self._tables:
            alone = OF_SAMPLE.get(name)
            self._tables[name] = getattr(self, f"_{name}")() if alone is None else alone(self.sample)
        return self._tables[name]

    def _statistics(self) -> pa.Table:
        layers, resampler, _ = self.measured()
        return describe(self.sample, layers, resampler)

    def _distances(self) -> pa.Table:
        layers, resampler, bins = self.measured()
        return distances_table(self.sample, layers, resampler, bins)

    def _links(self) -> pa.Table:
        pieces = [self.sample.pieces[code] for code in self.sample.piece.tolist()]
        return links_table(fetch(self.database, "all_attention_links", run_id=self.run_id), pieces)

    def _pairs(self) -> pa.Table:
        rows: list[dict[str, Any]] = []
        places = content_words(self.sample)
        rows_of_layers = fetch(self.database, "all_probabilities", run_id=self.run_id, positions=places.tolist())
        layer = rows_of_layers["layer"].to_numpy()
        flat = rows_of_layers["probabilities"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        chosen = flat.reshape(layer.size, -1) if layer.size else flat.reshape(0, self.sample.num_groups)
        for number in self.sample.layers:
            rows += long_range_rows(self.sample, number, places, chosen[layer == number])
        schema = schema_of(
            "layer:int64 rank:int64 query:int64 key:int64 query_piece:string key_piece:string distance:int64 affinity "
            "group:string"
        )
        return pa.Table.from_pylist(rows, schema=schema)


_cache: OrderedDict[tuple[str, str, str], RunStatistics] = OrderedDict()


def run_statistics(database: Database, run_id: str) -> RunStatistics:
    """The statistics of a run or a corpus, kept while nothing more is measured of it."""
    with database.read():
        corpus = corpus_row(database, run_id)
        if corpus is not None and corpus["status"] != "complete":
            raise InputError(
                f"the corpus {run_id} is not finished", fix="give the command that started it again: it continues"
            )
        state = stored_measurements(database, run_id) if corpus is None else corpus
    key = (str(database.path), run_id, repr(sorted(state.items())))
    if key not in _cache:
        sample = None if corpus is None else corpus_sample(CorpusData(database, run_id))
        _cache[key] = RunStatistics(database, run_id, sample)
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    return _cache[key]


def statistics_table(database: Database, run_id: str, name: str) -> pa.Table:
    """One table of a run or corpus."""
    if name not in NAMES:
        raise InputError(f"there are no statistics {name!r}", expected=" or ".join(NAMES))
    if name not in OF_CORPUS and corpus_row(database, run_id) is not None:
        raise InputError(f"a corpus has no table {name!r}", expected=" or ".join(OF_CORPUS))
    return run_statistics(database, run_id).table(name)


def agreement_between(database: Database, run_id: str, other_id: str) -> pa.Table:
    """Two runs of the same tokens, layer by layer; see `agreement.between_samples`."""
    ids = [fetch(database, "token_ids", run_id=one)["token_id"].to_numpy() for one in (run_id, other_id)]
    first, second = run_statistics(database, run_id).sample, run_statistics(database, other_id).sample
    if not np.array_equal(*ids):
        raise InputError(f"the runs {run_id} and {other_id} have other tokens", expected="two runs of the same text")
    return between_samples(first, second)
