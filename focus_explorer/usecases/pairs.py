"""The pairs of stored runs for the page: any part of a mask, pairs by distance, and full attention under the mask.

The pairs of a mask are counted by focus_runtime from the groups the attention executed. Full attention is measured
once, by running the model on the run's stored tokens, and kept in the database.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import (
    Part,
    PartGroups,
    by_top_k,
    chance_beyond,
    executed,
    named_part,
    sums_by_part,
)
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError, NotFoundError
from focus_explorer.progress import Progress
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.run_model import lease_run_model
from focus_explorer.usecases.runs import layer_parts, run_config, token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.views.pairs import (
    distance_payload,
    links_payload,
    mass_payload,
    mean_counts,
    mean_payload,
    tile_payload,
)
from focus_explorer.views.payloads.pairs import (
    AttentionLinksPayload,
    AttentionMassPayload,
    AttentionPlannedPayload,
    AttentionRunningPayload,
    DistanceMeanPayload,
    DistancePayload,
    MaskTilePayload,
)
from focus_runtime.mask.distances import DistanceCounts, count_by_distance, shuffled_sharing
from focus_runtime.mask.rule import PairRule
from focus_runtime.mask.tiles import count_tile

MOST_CELLS = 160  # cells of a tile a side; a cell is then a few pixels, and a tile a few hundred kilobytes
LARGE_TOKENS, LARGE_CELLS = 8192, 80  # wider areas in fewer cells: the count takes tokens x cells
MEASURED_TOKENS = 4096  # full attention is measured on at most the first so many; its cost grows with their square
KEPT_LAYERS = 16


def measure_attention(
    service: Service,
    run_id: str,
    *,
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> int:
    """Run a stored run's model once on its tokens and keep where full attention goes under the run's mask.

    Args:
        service: database and model.
        run_id: of the run.
        progress: takes each stage and the fraction done.
        cancelled: called before each layer; True stops the measurement, and nothing is kept.

    Returns:
        Tokens measured: the run's first `MEASURED_TOKENS`. No token sees a later one, so nothing that is measured would
        differ within the whole text.

    Raises:
        InputError: there is no such run, its model cannot be loaded or has other weights now, or the database cannot be
            written.
        Cancelled: `cancelled` returned True.
    """
    from focus_runtime.measure.attention_links import measure_attention as measure
    from focus_runtime.store.attention import write_attention

    def step(done: int, total: int) -> None:
        if cancelled():
            raise Cancelled("stopped")
        progress(f"Attention mass, layer {done} of {total}", 0.05 + 0.9 * done / total)

    run = fetch_run(service.database, run_id)
    ids = token_ids(service.database, run_id)[:MEASURED_TOKENS]
    groups = {layer: by_top_k(parts)[:, : len(ids)] for layer, parts in executed(service.database, run).items()}
    progress("Loading the model", 0.0)
    with lease_run_model(service, run, progress=progress) as loaded:
        layers = measure(loaded.model, ids, groups, run_config(run), progress=step)
    progress("Saving", 0.98)
    write_attention(service.database, run_id, layers, len(ids))
    return len(ids)


def _by_distance(parts: tuple[PartGroups, ...], rules: Sequence[PairRule]) -> DistanceCounts:
    """Pairs of one layer by distance, mean over its heads, in bins cut at all layers' rules, as in the statistics."""
    counts = [count_by_distance(one.membership, one.part.rule, rules) for one in parts]
    return mean_counts(counts, [one.part for one in parts])


def _chance(groups: Sequence[PartGroups], far: NDArray[np.float64], measured: int) -> float:
    """Share of a layer's distant attention, given by query head, that shuffled groups of the first tokens keep."""
    parts = [one.part for one in groups]
    sharing = [shuffled_sharing(one.membership[:measured]) for one in groups]
    return chance_beyond(sharing, sums_by_part(far, parts), parts)


AttentionState = AttentionMassPayload | AttentionRunningPayload | AttentionPlannedPayload


class PairViews:
    """Payloads about pairs of one database; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._layers: OrderedDict[tuple[str, int], tuple[PartGroups, ...]] = OrderedDict()
        self._means: dict[str, DistanceMeanPayload] = {}
        self._jobs = JobRunner()
        self._lock = threading.Lock()

    def part_with(self, run_id: str, layer: int, head: int | None, fix: str) -> Part:
        """The heads of a layer that are alike with one of them, which must be named where they differ.

        Args:
            run_id: of the run.
            layer: layer number.
            head: key-value head, or query head where the heads of a key-value head differ.
            fix: how a head is named.

        Raises:
            InputError: there is no such run, layer or head, or the heads differ and none was named.
        """
        return named_part([one.part for one in self._layer(run_id, layer)], layer, head, fix)

    def tile(
        self, run_id: str, layer: int, rows: tuple[int, int], keys: tuple[int, int], part: int = 0
    ) -> MaskTilePayload:
        """Pairs by cause in a rectangle, in at most `MOST_CELLS` cells a side; single pairs where they fit.

        Args:
            run_id: of the run.
            layer: layer number.
            rows: first and one past the last query; cut to the text and widened to whole cells.
            keys: the same of the keys.
            part: number of the heads, where those of the layer differ.

        Raises:
            InputError: nothing of the rectangle lies within the text, or there is no such layer or part.
        """
        parts = self._layer(run_id, layer)
        if not 0 <= part < len(parts):
            raise NotFoundError(f"the heads of layer {layer} have no part {part}", expected=f"0 to {len(parts) - 1}")
        membership, rule = parts[part].membership, parts[part].part.rule
        total = membership.size
        rows, keys = ((max(0, low), min(total, high)) for low, high in (rows, keys))
        if rows[0] >= rows[1] or keys[0] >= keys[1]:
            raise InputError("that part of the mask lies outside the text", expected=f"tokens 0 to {total - 1}")
        side = max(rows[1] - rows[0], keys[1] - keys[0])
        size = -(-side // (MOST_CELLS if side <= LARGE_TOKENS else LARGE_CELLS))
        rows, keys = ((low // size * size, min(total, -(-high // size) * size)) for low, high in (rows, keys))
        counts = count_tile(membership, rows, keys, rule, size)
        return tile_payload(counts, rows, keys, size)

    def distances(self, run_id: str, layer: int) -> DistancePayload:
        """Pairs of one layer by distance and cause, with both null models; means over its heads."""
        return distance_payload(_by_distance(self._layer(run_id, layer), self._rules(run_id)))

    def distance_mean(self, run_id: str) -> DistanceMeanPayload:
        """The same as shares, mean over the run's layers, and every layer's nulls over all distances."""
        run = fetch_run(self.service.database, run_id)  # which may have been deleted since
        if run_id not in self._means:
            layers = executed(self.service.database, run)
            rules = self._rules(run_id)
            counts = [_by_distance(parts, rules) for parts in layers.values()]
            self._means[run_id] = mean_payload(counts)  # a few kilobytes, and runs never change
        return self._means[run_id]

    def _rules(self, run_id: str) -> list[PairRule]:
        """Of all heads of all layers."""
        parts = layer_parts(self.service.database, fetch_run(self.service.database, run_id))
        return [one.rule for of_layer in parts.values() for one in of_layer]

    def _layer(self, run_id: str, layer: int) -> tuple[PartGroups, ...]:
        """What the heads of one layer executed; the latest few are kept, runs never change."""
        key = (run_id, layer)
        run = fetch_run(self.service.database, run_id)  # which may have been deleted since
        with self._lock:
            if key in self._layers:
                self._layers.move_to_end(key)
                return self._layers[key]
        parts = executed(self.service.database, run, layer)[layer]
        with self._lock:
            self._layers[key] = parts
            while len(self._layers) > KEPT_LAYERS:
                self._layers.popitem(last=False)
        return parts

    def attention(self, run_id: str) -> AttentionState:
        """State of a run's measurement: "none", "running", "failed" or, with the results, "done"."""
        job = self._jobs.get(run_id)
        if job is not None and job.live:
            return {"state": "running", "stage": job.stage, "fraction": job.fraction}
        run = fetch_run(self.service.database, run_id)
        rows = fetch(self.service.database, "attention_mass", run_id=run_id)
        if rows.num_rows:
            measured, layer = rows["num_tokens"][0].as_py(), rows["layer"].to_numpy()
            far = rows["grouped"].to_numpy() + rows["dropped"].to_numpy()
            layers = executed(self.service.database, run)
            chances = [_chance(groups, far[layer == number], measured) for number, groups in layers.items()]
            return mass_payload(rows, chances)
        planned: AttentionPlannedPayload = {
            "state": "none",
            "num_tokens": min(run["num_tokens"], MEASURED_TOKENS),
            "whole": run["num_tokens"],
        }
        if job is not None and job.state == "failed":
            planned |= {"state": "failed", "problem": job.message}
        return planned

    def links(self, run_id: str, layer: int) -> AttentionLinksPayload:
        """Strongest links of one layer, empty until it was measured."""
        return links_payload(fetch(self.service.database, "attention_links", run_id=run_id, layer=layer))

    def start(self, run_id: str) -> AttentionState:
        """Measure a run in the background unless that is under way; `attention` returns its state."""

        def measure(job: Job) -> None:
            measure_attention(self.service, run_id, progress=job.step, cancelled=job.stop_requested)

        fetch_run(self.service.database, run_id)
        self._jobs.start(run_id, measure, kind="attention", run_id=run_id)
        return self.attention(run_id)

    def stop(self, run_id: str) -> AttentionState:
        """Stop a measurement before its next layer; nothing of it is kept."""
        self._jobs.stop(run_id)
        return self.attention(run_id)
