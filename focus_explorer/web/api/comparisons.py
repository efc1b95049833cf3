"""Comparisons of a run with other settings, lengths and runs, for programs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from focus_explorer.usecases.compare.costs import explain_token, measure_heads, measured_heads, measured_links
from focus_explorer.usecases.compare.runs import NO_PARTNER
from focus_explorer.usecases.compare.what_if import WhatIfs
from focus_explorer.usecases.jobs import done_here
from focus_explorer.usecases.runs import check_run
from focus_explorer.usecases.service import Service
from focus_explorer.web.api.request import ask
from focus_explorer.web.parameters import words


class ComparisonFunctions:
    """Functions about comparisons; only `missing_links`, `head_costs` and `what_if` measure."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def settings(self, run_id: str) -> dict:
        """A run's text at other settings of top-k and window, as far as they were measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            setting: the run's own; num_groups; suggested: values worth measuring; cells: for each measurement kind
            (focus, window: without groups, random: untrained centroids), top_k, window_size in tokens, perplexities,
            delta_mean, delta_low and delta_high (loss difference in nats per token, 95 % interval), retained_pairs and
            dominance (shares), and medians with lowest and highest of the times in milliseconds.
        """
        payload = ask(self.service, "compare_grid", run_id)
        return {name: value for name, value in payload.items() if name != "job"}

    def lengths(self, run_id: str) -> dict:
        """From which length Focus overtakes full attention, as far as it was measured; measures nothing itself.

        Args:
            run_id: as listed by runs.

        Returns:
            layers: by layer number, points (tokens; milliseconds of one layer's attention, full and Focus: median, low,
            high; routing in milliseconds; top_k and window_size: the run's, of heads without an exception, while each
            head was timed with its own) and crossing (kind: interpolated, from the start, never or mixed; tokens: the
            length of equal times, between the measured lengths below and above; clear: whether the repeats of the two
            do not overlap).
        """
        return {"layers": ask(self.service, "compare_lengths", run_id)["layers"]}

    def missing_links(self, run_id: str, token: int) -> dict:
        """Why Focus predicts a token worse: the dropped pairs that would have helped, the best ten added and run.

        Args:
            run_id: as listed by runs.
            token: position of the predicted token, 1 or more; its hurt most are in the Compare view.

        Returns:
            token; nll_full, nll_focus: its loss in nats; nll_together: the same with all verified links added, null
            without any; dropped_pairs: pairs compared over all layers and query heads; links: verified ones first, each
            with layer, head (query head), query and key (positions), probability the key would get, predicted (change
            in nats to first order), nll (with the link added, null where it was not verified) and random_keeps
            (whether random centroids would have kept the pair, null where unknown). Measured unless it is stored;
            takes some seconds for a thousand tokens.
        """
        service = self.service
        check_run(service.database, run_id)
        stored = measured_links(service, run_id, token)["explained"]
        if stored is None:
            stored = done_here("links", lambda job: explain_token(service, run_id, token, **job.controls()))
        return dict(stored)

    def head_costs(self, run_id: str) -> dict:
        """What the mask costs in each key-value head; measured unless stored, which takes about half a minute.

        Args:
            run_id: as listed by runs.

        Returns:
            num_tokens: first tokens of the run that were measured; nll_full, nll_focus: mean loss on them in nats per
            token; heads: measured ones first, each with layer, head, estimated (change of the loss by full attention in
            this head alone, from the derivative), nll (the loss measured so, null where it was not) and dropped (share
            of full attention outside the mask, null until measured).
        """
        stored = measured_heads(self.service, run_id)
        if not stored["heads"]:
            stored = done_here("heads", lambda job: measure_heads(self.service, run_id, **job.controls()))
        return dict(stored)

    def what_if(self, run_id: str, changes: list) -> dict:
        """A run with changes made by hand, read again from the first changed layer on; nothing is stored.

        Args:
            run_id: as listed by runs.
            changes: texts such as move:12:163:B, see:12:163:1, silence:12:B, full:12:0, k:12=2 or window:12=256.

        Returns:
            num_tokens: first tokens of the run that were read; nll_full, nll_before, nll_after: mean losses in nats per
            token with full attention, without and with the changes; difference: of the last two, mean, low and high
            (95 %) and count; changes: by token, loss with the changes minus without, in nats, 0 for the first;
            other_top: positions whose most probable token differs; layers: from the first changed one, each with moved
            (tokens in another group), kept_before and kept_after (share of pairs).
        """
        texts = words({"changes": changes}, "changes")
        measured = self.service.part(WhatIfs)
        payload = done_here("what_if", lambda job: measured.measure(run_id, texts, **job.controls()))
        values = np.frombuffer(base64.b64decode(payload["changes"]), dtype=np.float32)
        return {**payload, "changes": values.tolist()}

    def beside(self, run_id: str, other: str) -> dict:
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
        payload = ask(self.service, "compare_beside", run_id, other=other)
        groups = np.frombuffer(base64.b64decode(payload["top"]), dtype=np.uint8)
        groups = groups.reshape(len(payload["layers"]), len(payload["losses"]))
        top = [[None if group == NO_PARTNER else group for group in row] for row in groups.tolist()]
        return payload | {"top": top}


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = ComparisonFunctions(service)
    return {
        "settings": made.settings,
        "lengths": made.lengths,
        "beside": made.beside,
        "missing_links": made.missing_links,
        "head_costs": made.head_costs,
        "what_if": made.what_if,
    }
