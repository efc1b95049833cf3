"""Pairs of a run for programs: lists in place of packed bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from focus_explorer.errors import InputError
from focus_explorer.usecases.pairs import PairViews
from focus_explorer.usecases.runs import layer_numbers
from focus_explorer.usecases.service import Service
from focus_explorer.web.api.request import ask

ALL_LAYERS = -1


class PairFunctions:
    """Functions about pairs and attention."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def mask(
        self,
        run_id: str,
        layer: int,
        first_query: int,
        last_query: int,
        first_key: int,
        last_key: int,
        head: int | None = None,
    ) -> dict:
        """A rectangle of the attention mask of one head: pairs of tokens by the cause they are kept or dropped for.

        Args:
            run_id: as listed by runs.
            layer: layer number.
            first_query: position of the first query token.
            last_query: position of the last query token, included.
            first_key: position of the first key token.
            last_key: position of the last key token, included.
            head: key-value head, or query head where the heads of a key-value head differ; needed where the heads of
                the layer differ.

        Returns:
            heads: those that have this mask, query_heads: whether the numbers are of query heads;
            block_size: tokens to a side of a cell, 1 while the rectangle is at most 160 tokens wide and high;
            rows, keys: first position and one past the last of what was counted, widened to whole cells;
            causes; counts: by cause, rows x columns of pairs (a key after its query is no pair and counts nowhere).
        """
        rows, keys = [first_query, last_query], [first_key, last_key]
        part = self.service.part(PairViews).part_with(run_id, layer, head, "name one of them as head")
        payload = ask(self.service, "mask_tile", run_id, layer=layer, rows=rows, keys=keys, part=part.number)
        kind = np.dtype(f"<u{payload['bytes']}")
        shape = (len(payload["causes"]), payload["num_rows"], payload["num_columns"])
        counts = np.frombuffer(base64.b64decode(payload["counts"]), dtype=kind).reshape(shape)
        return {
            "heads": list(part.heads),
            "query_heads": part.by_query,
            "block_size": payload["block_size"],
            "rows": list(payload["rows"]),
            "keys": list(payload["keys"]),
            "causes": payload["causes"],
            "counts": dict(zip(payload["causes"], counts.tolist(), strict=True)),
        }

    def distances(self, run_id: str, layer: int = ALL_LAYERS) -> dict:
        """Pairs by distance and cause, compared with what random groups and the window alone would keep.

        Args:
            run_id: as listed by runs.
            layer: layer number; -1 for the mean over the layers.

        Returns:
            first, last: distances of every bin in tokens; causes; counts: causes x bins of pairs (one layer), or
            shares: the same as shares of a bin's pairs (mean) with kept_least and kept_most of any layer and pairs;
            shuffled, window_only: share of a bin's pairs that random groups of the same sizes, or window and sinks
            alone, would keep; beyond: by layer, the share of pairs beyond window and sinks that the groups keep (null
            where there are none), and sharing, what random groups would keep of them: of those of all heads together.
            Heads with full attention keep all of theirs in both; in window_only they count with the window, as if they
            had no full attention.
        """
        if layer == ALL_LAYERS:
            return ask(self.service, "pair_distances_mean", run_id)
        return ask(self.service, "pair_distances", run_id, layer=layer)

    def attention(self, run_id: str) -> dict:
        """Share of full attention that the mask keeps, when it was measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            state: none, running, failed or done. Done: layers: their numbers; num_tokens measured; mass_kept,
            distant_mass_kept, local, sinks, grouped, dropped: layers x heads, shares of the attention probability
            from 0 to 1, means over the query tokens (distant: beyond window and sinks, null where there is none);
            sharing: by layer, the share of its heads' distant attention together that shuffled groups would keep.
        """
        payload = ask(self.service, "attention", run_id)
        return (
            {"layers": layer_numbers(self.service.database, run_id)} | payload
            if payload["state"] == "done"
            else payload
        )

    def attention_links(self, run_id: str, layer: int, count: int = 20) -> dict:
        """The strongest single links beyond window and sinks that Focus drops and keeps; empty until measured.

        Args:
            run_id: as listed by runs.
            layer: layer number.
            count: number of links of each kind, at least 1.

        Returns:
            dropped, kept: strongest first; for each head, query and key (positions), probability (part of that
            query's full attention, 0 to 1) and affinity (probability that both tokens draw the same group).
        """
        if count < 1:
            raise InputError(f"count is {count}", expected="1 or more")
        payload = ask(self.service, "attention_links", run_id, layer=layer)
        return {
            kind: [dict(zip(payload["columns"], row, strict=True)) for row in payload[kind][:count]]
            for kind in ("dropped", "kept")
        }


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = PairFunctions(service)
    return {
        "mask": made.mask,
        "distances": made.distances,
        "attention": made.attention,
        "attention_links": made.attention_links,
    }
