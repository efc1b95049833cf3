"""The pairs of stored runs for the page: any part of a mask, pairs by distance, and full attention under the mask.

The pairs of a mask are counted by focus_runtime from the groups the attention executed. Full attention is measured
once, by running the model on the run's stored tokens, and kept in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, PartGroups, by_top_k, chance_beyond, executed, named_part, sums_by_part
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.run_model import composed_run, lease_run_model, run_changes
from focus_explorer.usecases.runs import layer_parts, run_config, token_ids
from focus_explorer.usecases.service import Latest, Service
from focus_explorer.views.pairs import (
    distance_payload,
    links_payload,
    mass_payload,
    mean_counts,
    mean_payload,
    tile_payload,
)
from focus_explorer.views.payloads import statistics as payloads
from focus_explorer.views.payloads.runs import AttentionOfTokenPayload, LayerAttentionOfTokenPayload
from focus_explorer.views.run import encode
from focus_runtime.mask.counts import count_tile
from focus_runtime.mask.distances import DistanceCounts, count_by_distance, shuffled_sharing
from focus_runtime.mask.rule import PairRule
from focus_runtime.store.measurements import write_attention

MOST_CELLS = 160  # cells of a tile a side; a cell is then a few pixels, and a tile a few hundred kilobytes
LARGE_TOKENS, LARGE_CELLS = 8192, 80  # wider areas in fewer cells: the count takes tokens x cells
MEASURED_TOKENS = 4096  # full attention is measured on at most the first so many; its cost grows with their square
KEPT_LAYERS = 16

AttentionState = payloads.AttentionMassPayload | payloads.AttentionRunningPayload | payloads.AttentionPlannedPayload
MOST_TOKENS = 32_768
BUSY = ("the attention of other tokens is being computed", "wait for it")


def measure_attention(service: Service, run_id: str, *, progress: Progress = silent) -> int:
    """Run a stored run's model once on its tokens and keep where full attention goes under the run's mask.

    Returns how many of its first tokens were measured: no token sees a later one, so the rest changes nothing.
    """
    from focus_runtime.measure.attention_mass import measure_attention as measure

    def step(done: int, total: int) -> None:
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


class PairViews:
    """Payloads about pairs of one database; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._layers: Latest[tuple[str, int], tuple[PartGroups, ...]] = Latest(KEPT_LAYERS)
        self._means: dict[str, payloads.DistanceMeanPayload] = {}
        self._jobs = JobRunner()

    def part_with(self, run_id: str, layer: int, head: int | None, fix: str) -> Part:
        """The heads of a layer that are alike with one of them, which must be named where they differ."""
        return named_part([one.part for one in self._layer(run_id, layer)], layer, head, fix)

    def tile(
        self, run_id: str, layer: int, rows: tuple[int, int], keys: tuple[int, int], part: int = 0
    ) -> payloads.MaskTilePayload:
        """Pairs by cause in a rectangle, in at most `MOST_CELLS` cells a side; single pairs where they fit."""
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

    def distances(self, run_id: str, layer: int) -> payloads.DistancePayload:
        """Pairs of one layer by distance and cause, with both null models; means over its heads."""
        return distance_payload(_by_distance(self._layer(run_id, layer), self._rules(run_id)))

    def distance_mean(self, run_id: str) -> payloads.DistanceMeanPayload:
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
        run = fetch_run(self.service.database, run_id)  # which may have been deleted since
        kept = self._layers.get((run_id, layer))
        return kept or self._layers.keep((run_id, layer), executed(self.service.database, run, layer)[layer])

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
        planned: payloads.AttentionPlannedPayload = {
            "state": "none",
            "num_tokens": min(run["num_tokens"], MEASURED_TOKENS),
            "whole": run["num_tokens"],
        }
        if job is not None and job.state == "failed":
            planned |= {"state": "failed", "problem": job.message}
        return planned

    def links(self, run_id: str, layer: int) -> payloads.AttentionLinksPayload:
        """Strongest links of one layer, empty until it was measured."""
        return links_payload(fetch(self.service.database, "attention_links", run_id=run_id, layer=layer))

    def start(self, run_id: str) -> AttentionState:
        """Measure a run in the background unless that is under way; `attention` returns its state."""
        fetch_run(self.service.database, run_id)
        measure = partial(measure_attention, self.service, run_id)
        self._jobs.start(run_id, lambda job: measure(progress=job.step), kind="attention", run_id=run_id)
        return self.attention(run_id)

    def stop(self, run_id: str) -> AttentionState:
        """Stop a measurement before its next layer; nothing of it is kept."""
        self._jobs.stop(run_id)
        return self.attention(run_id)


class TokenAttentions:
    """Passes of one service; a result is kept while few others are asked for."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs = JobRunner(most_live=4, busy=BUSY)

    def start(self, run_id: str, token: int) -> AttentionOfTokenPayload:
        run = fetch_run(self.service.database, run_id)
        last = min(run["num_tokens"], MOST_TOKENS) - 1
        if not 0 <= token <= last:
            limit = ": the model reads all tokens before it" if run["num_tokens"] > MOST_TOKENS else ""
            raise InputError(
                f"the attention of token {token:,} of this run cannot be computed", expected=f"0 to {last:,}{limit}"
            )
        if run_changes(run):
            raise InputError(
                "this run was changed by hand, and its attention cannot be computed here",
                fix="look at the run that it came from",
            )
        work = partial(self._measure, run_id, token)
        self._jobs.start((run_id, token), work, kind="token_attention", run_id=run_id, reuse_done=True, join=True)
        return self.state(run_id, token)

    def state(self, run_id: str, token: int) -> AttentionOfTokenPayload:
        """What is known of a token's attention: the job that computes it, and its result."""
        job = self._jobs.get((run_id, token))
        return {
            "job": None if job is None else job.status(),
            "layers": job.result if job is not None and job.state == "done" else None,
        }

    def stop(self, run_id: str, token: int) -> AttentionOfTokenPayload:
        self._jobs.stop((run_id, token))
        return self.state(run_id, token)

    def _measure(self, run_id: str, token: int, job: Job) -> list[LayerAttentionOfTokenPayload]:
        from focus_runtime.explain.token_attention import token_attention

        run = fetch_run(self.service.database, run_id)
        ids = token_ids(self.service.database, run_id)
        job.step("Loading the model", 0.0)
        leased = lease_run_model(self.service, run, progress=job.step)
        with leased as loaded, composed_run(self.service, run, loaded) as focus:
            layers = token_attention(
                focus, ids, token, progress=lambda done, total: job.step("Reading the text twice", done / total)
            )
        return [
            {
                "layer": layer.layer,
                "rows": layer.keys.shape[0],
                "keys": encode(layer.keys.astype(np.int32)),
                "full": encode(layer.full),
                "focus": encode(layer.focus),
                "kept": encode(layer.kept),
                "full_kept": encode(layer.full_kept),
            }
            for layer in layers
        ]
