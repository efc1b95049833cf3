"""What the page's views answer, as functions for programs and language models: lists in place of packed bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.services.service import Service
from focus_explorer.statistics.run_statistics import statistics_table
from focus_explorer.ui.questions.answer import answer

ALL_LAYERS = -1
NO_PARTNER = 255
MOST_ROWS = 5000


def view_functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function; names, arguments and answers are documented in docs/howto-api.md."""

    def ask(what: str, run_id: str, **details: Any) -> dict[str, Any]:
        fetch_run(service.database, run_id)  # some answers of an unknown run are merely empty
        return answer(service, {"what": what, "run": run_id, **details})

    def numbers(run_id: str) -> list[int]:
        return [int(layer) for layer in fetch(service.database, "layers", run_id=run_id)["layer"].to_pylist()]

    return {**_of_groups(ask, numbers), **_of_pairs(ask, numbers), **_of_settings(ask), **_of_statistics(service)}


Ask = Callable[..., dict[str, Any]]
Numbers = Callable[[str], list[int]]


def _of_groups(ask: Ask, numbers: Numbers) -> dict[str, Callable[..., Any]]:
    def agreement(run_id: str) -> dict:
        """How far every two layers sort the tokens alike.

        Args:
            run_id: as listed by runs.

        Returns:
            layers: their numbers; agreement: layers x layers adjusted Rand indices (1 the same groups, 0 chance);
            shuffled: least and most of neighbouring layers with one of them shuffled, null for a single layer;
            pairs: how many neighbours that were; seed.
        """
        found = ask("agreement", run_id)
        return {"layers": numbers(run_id)} | found

    def map(run_id: str, layer: int = ALL_LAYERS, quick: bool = False) -> dict:
        """Tokens, and a layer's centroids, in two dimensions.

        Args:
            run_id: as listed by runs.
            layer: layer number; -1 for the map of all layers, which has no centroids.
            quick: a PCA at once where no map is stored; otherwise a UMAP is made and stored, which can take a minute.

        Returns:
            positions: the tokens drawn, at most 4,000 evenly spaced ones; x, y: their coordinates, without a unit;
            centroid_x, centroid_y: by group; method, parameters, seed; trustworthiness: 0 to 1, null where unknown;
            preliminary: whether this is the PCA.
        """
        return ask("map", run_id, layer=None if layer == ALL_LAYERS else layer, quick=quick)

    return {"agreement": agreement, "map": map}


def _of_pairs(ask: Ask, numbers: Numbers) -> dict[str, Callable[..., Any]]:
    def mask(run_id: str, layer: int, first_query: int, last_query: int, first_key: int, last_key: int) -> dict:
        """A rectangle of the attention mask: pairs of tokens by the cause they are kept or dropped for.

        Args:
            run_id: as listed by runs.
            layer: layer number.
            first_query: position of the first query token.
            last_query: position of the last query token, included.
            first_key: position of the first key token.
            last_key: position of the last key token, included.

        Returns:
            block_size: tokens to a side of a cell, 1 while the rectangle is at most 160 tokens wide and high;
            rows, keys: first position and one past the last of what was counted, widened to whole cells;
            causes; counts: by cause, rows x columns of pairs (a key after its query is no pair and counts nowhere).
        """
        found = ask("mask_tile", run_id, layer=layer, rows=[first_query, last_query], keys=[first_key, last_key])
        kind = np.dtype(f"<u{found['bytes']}")
        shape = (len(found["causes"]), found["num_rows"], found["num_columns"])
        counts = np.frombuffer(base64.b64decode(found["counts"]), dtype=kind).reshape(shape)
        return {
            "block_size": found["block_size"],
            "rows": found["rows"],
            "keys": found["keys"],
            "causes": found["causes"],
            "counts": dict(zip(found["causes"], counts.tolist(), strict=True)),
        }

    def distances(run_id: str, layer: int = ALL_LAYERS) -> dict:
        """Pairs by distance and cause, beside what random groups and the window alone would keep.

        Args:
            run_id: as listed by runs.
            layer: layer number; -1 for the mean over the layers.

        Returns:
            first, last: distances of every bin in tokens; causes; counts: causes x bins of pairs (one layer), or
            shares: the same as shares of a bin's pairs (mean) with kept_least and kept_most of any layer and pairs;
            shuffled, window_only: share of a bin's pairs that random groups of the same sizes, or window and sinks
            alone, would keep; beyond: by layer, the share of pairs beyond window and sinks that the groups keep (null
            where there are none), and sharing, what random groups would keep of them.
        """
        if layer == ALL_LAYERS:
            return ask("pair_distances_mean", run_id)
        return ask("pair_distances", run_id, layer=layer)

    def attention(run_id: str) -> dict:
        """Share of full attention that the mask keeps, when it was measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            state: none, running, failed or done. Done: layers: their numbers; num_tokens measured; mass_kept,
            distant_mass_kept, local, sinks, grouped, dropped: layers x heads, shares of the attention probability
            from 0 to 1, means over the query tokens (distant: beyond window and sinks, null where there is none);
            sharing: by layer, the share of distant attention that shuffled groups would keep.
        """
        found = ask("attention", run_id)
        return {"layers": numbers(run_id)} | found if found["state"] == "done" else found

    def attention_links(run_id: str, layer: int, count: int = 20) -> dict:
        """The strongest single links beyond window and sinks that Focus drops and keeps; empty until measured.

        Args:
            run_id: as listed by runs.
            layer: layer number.
            count: links of each kind wanted, at least 1.

        Returns:
            dropped, kept: strongest first; for each head, query and key (positions), probability (part of that
            query's full attention, 0 to 1) and affinity (probability that both tokens draw the same group).
        """
        if count < 1:
            raise InputError(f"count is {count}", expected="1 or more")
        found = ask("attention_links", run_id, layer=layer)
        return {
            kind: [dict(zip(found["columns"], row, strict=True)) for row in found[kind][:count]]
            for kind in ("dropped", "kept")
        }

    return {"mask": mask, "distances": distances, "attention": attention, "attention_links": attention_links}


def _of_settings(ask: Ask) -> dict[str, Callable[..., Any]]:
    def settings(run_id: str) -> dict:
        """A run's text at other settings of top-k and window, as far as they were measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            setting: the run's own; num_groups; suggested: values worth measuring; cells: for each measurement kind
            (focus, window: without groups, random: untrained centroids), top_k, window_size in tokens, perplexities,
            delta_mean, delta_low and delta_high (loss difference in nats per token, 95 % interval), retained_pairs and
            dominance (shares), and medians with lowest and highest of the times in milliseconds.
        """
        found = ask("compare_grid", run_id)
        return {name: value for name, value in found.items() if name != "job"}

    def lengths(run_id: str) -> dict:
        """From which length Focus overtakes full attention, as far as it was measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            layers: by layer number, points (tokens; milliseconds of one layer's attention, full and Focus: median, low,
            high; routing in milliseconds) and crossing (kind: interpolated, from the start, never or mixed; tokens: the
            length of equal times, between the measured lengths below and above; clear: whether the repeats of the two
            do not overlap).
        """
        return {"layers": ask("compare_lengths", run_id)["layers"]}

    def beside(run_id: str, other: str) -> dict:
        """Two runs of exactly the same tokens, the second one's groups matched with those of the first.

        Args:
            run_id: as listed by runs.
            other: another run of the same tokens.

        Returns:
            layers: for each its number, names (group of the first run for each of the second, -1 without a partner),
            overlap (share of tokens in matched groups), rand (adjusted Rand index); top: by layer, the group of every
            token in the second run under the first one's numbers, null without a partner; losses: Focus of the second
            run in nats, null for the first token; difference: second minus first, mean, low and high (95 %) in nats
            per token, and count of tokens.
        """
        found = ask("compare_beside", run_id, other=other)
        groups = np.frombuffer(base64.b64decode(found["top"]), dtype=np.uint8)
        groups = groups.reshape(len(found["layers"]), len(found["losses"]))
        top = [[None if group == NO_PARTNER else group for group in row] for row in groups.tolist()]
        return found | {"top": top}

    return {"settings": settings, "lengths": lengths, "beside": beside}


def _of_statistics(service: Service) -> dict[str, Callable[..., Any]]:
    def statistics(run_id: str, table: str = "statistics", layer: int = ALL_LAYERS) -> list:
        """What can be said about the groups, each number with its interval and baselines; measures nothing itself.

        Args:
            run_id: as listed by runs.
            table: statistics, characteristic, categories, agreement, distances, links or pairs; docs/statistics.md says
                what they hold.
            layer: only rows of this layer; -1 for those of all layers.

        Returns:
            Rows as objects, at most 5,000: value, low and high (95 %), shuffled, random (null until random centroids
            were run on the text), window_only, p_value, q_value, count with denominator, units, and a warning.
        """
        rows = statistics_table(service.database, run_id, table).to_pylist()
        if layer != ALL_LAYERS:
            rows = [row for row in rows if row["layer"] == layer]
        if len(rows) > MOST_ROWS:
            raise InputError(f"the table has {len(rows):,} rows", expected=f"at most {MOST_ROWS:,}", fix="name a layer")
        return rows

    return {"statistics": statistics}
