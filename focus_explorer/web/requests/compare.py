"""Requests of the Compare view: settings, other runs, lengths, missing links, heads, what-if and generation."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from focus_explorer.usecases.compare import runs
from focus_explorer.usecases.compare.costs import explain_token, measure_heads, measured_heads, measured_links
from focus_explorer.usecases.compare.jobs import Comparisons
from focus_explorer.usecases.compare.lengths import lengths
from focus_explorer.usecases.compare.settings import REPEATS, grid
from focus_explorer.usecases.compare.what_if import WhatIfs, repeated_by
from focus_explorer.usecases.jobs import done_here
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.runs import check_run
from focus_explorer.usecases.service import Service


def with_job(read: Callable[..., Payload]) -> Callable[..., Payload]:
    """What was measured, and the job that measures more.

    The job's state is read before the results, which are whole once it is done.
    """

    @wraps(read)
    def answer(service: Service, *given: Any, **named: Any) -> Payload:
        job = service.part(Comparisons).status()
        return {**read(service, *given, **named), "job": job}

    return answer


compared_settings = with_job(grid)
times_by_length = with_job(lengths)
links = with_job(measured_links)
heads = with_job(measured_heads)


@with_job
def changed_run(
    service: Service, run_id: str, changes: list[str], layer: int | None = None, token: int | None = None
) -> Payload:
    """A run with changes, as far as it was measured."""
    measured = service.part(WhatIfs).measured(run_id, changes, layer, token)
    saved = service.part(Comparisons).saved(run_id)
    return {**measured, "saved": saved, "command": repeated_by(run_id, changes)}


@with_job
def generation(service: Service, run_id: str) -> Payload:
    """Text the newest generation of this run has written so far."""
    return {"sides": service.part(Comparisons).generated(run_id)}


def start_settings(
    service: Service, run_id: str, top_k: list[int], window: list[int], repeats: int = REPEATS
) -> Payload:
    service.part(Comparisons).start_grid(run_id, top_k, window, repeats)
    return compared_settings(service, run_id)


def numbers(service: Service, run_id: str, other: str) -> Payload:
    return runs.compare_numbers(service, run_id, other)


def start_lengths(service: Service, run_id: str, layer: int, seconds: float = 30) -> Payload:
    service.part(Comparisons).start_lengths(run_id, layer, seconds)
    return times_by_length(service, run_id)


def start_links(service: Service, run_id: str, token: int) -> Payload:
    service.part(Comparisons).start_links(run_id, token)
    return links(service, run_id, token)


def start_heads(service: Service, run_id: str) -> Payload:
    service.part(Comparisons).start_heads(run_id)
    return heads(service, run_id)


def start_changed_run(
    service: Service, run_id: str, changes: list[str], layer: int | None = None, token: int | None = None
) -> Payload:
    service.part(Comparisons).start_what_if(run_id, changes)
    return changed_run(service, run_id, changes, layer, token)


def save_changed_run(
    service: Service, run_id: str, changes: list[str], layer: int | None = None, token: int | None = None
) -> Payload:
    """Store a run with changes as a run."""
    service.part(Comparisons).start_saving(run_id, changes)
    return changed_run(service, run_id, changes, layer, token)


def start_generation(
    service: Service, run_id: str, prompt: str = "", max_tokens: int = 60, temperature: float = 0, seed: int = 0
) -> Payload:
    comparisons = service.part(Comparisons)
    comparisons.start_generation(run_id, prompt, max_tokens=max_tokens, temperature=temperature, seed=seed)
    return generation(service, run_id)


def compare(service: Service, first: str, second: str) -> dict[str, Any]:
    """The numbers of two runs side by side, and the settings that differ.

    Args:
        first: id of a run.
        second: id of another run.
    """
    return dict(runs.compare_numbers(service, first, second))


def settings(service: Service, run_id: str) -> dict[str, Any]:
    """A run's text at other settings of top-k and window, as far as they were measured; measures nothing itself.

    Returns:
        setting: the run's own; num_groups; suggested: values worth measuring; cells: for each measurement kind
        (focus, window: without groups, random: untrained centroids), top_k, window_size in tokens, perplexities,
        delta_mean, delta_low and delta_high (loss difference in nats per token, 95 % interval), retained_pairs and
        dominance (shares), and medians with lowest and highest of the times in milliseconds.
    """
    check_run(service.database, run_id)
    return dict(grid(service, run_id))


def overtaking(service: Service, run_id: str) -> dict[str, Any]:
    """From which length Focus overtakes full attention, as far as it was measured; measures nothing itself.

    Returns:
        layers: by layer number, points (tokens; milliseconds of one layer's attention, full and Focus: median, low,
        high; routing in milliseconds; top_k and window_size: the run's, of heads without an exception, while each
        head was timed with its own) and crossing (kind: interpolated, from the start, never or mixed; tokens: the
        length of equal times, between the measured lengths below and above; clear: whether the repeats of the two
        do not overlap).
    """
    check_run(service.database, run_id)
    return {"layers": lengths(service, run_id)["layers"]}


def missing_links(service: Service, run_id: str, token: int) -> dict[str, Any]:
    """Why Focus predicts a token worse: the dropped pairs that would have helped, the best ten added and run.

    Args:
        token: position of the predicted token, 1 or more; its hurt most are in the Compare view.

    Returns:
        token; nll_full, nll_focus: its loss in nats; nll_together: the same with all verified links added, null
        without any; dropped_pairs: pairs compared over all layers and query heads; links: verified ones first, each
        with layer, head (query head), query and key (positions), probability the key would get, predicted (change
        in nats to first order), nll (with the link added, null where it was not verified) and random_keeps
        (whether random centroids would have kept the pair, null where unknown). Measured unless it is stored;
        takes some seconds for a thousand tokens.
    """
    check_run(service.database, run_id)
    stored = measured_links(service, run_id, token)["explained"]
    if stored is None:
        stored = done_here("links", lambda job: explain_token(service, run_id, token, progress=job.step))
    return dict(stored)


def head_costs(service: Service, run_id: str) -> dict[str, Any]:
    """What the mask costs in each key-value head; measured unless stored, which takes about half a minute.

    Returns:
        num_tokens: first tokens of the run that were measured; nll_full, nll_focus: mean loss on them in nats per
        token; heads: measured ones first, each with layer, head, estimated (change of the loss by full attention in
        this head alone, from the derivative), nll (the loss measured so, null where it was not) and dropped (share
        of full attention outside the mask, null until measured).
    """
    stored = measured_heads(service, run_id)
    if not stored["heads"]:
        stored = done_here("heads", lambda job: measure_heads(service, run_id, progress=job.step))
    return dict(stored)


def what_if(service: Service, run_id: str, changes: list[str]) -> dict[str, Any]:
    """A run with changes made by hand, read again from the first changed layer on; nothing is stored.

    Args:
        changes: texts such as move:12:163:B, see:12:163:1, silence:12:B, full:12:0, k:12=2 or window:12=256.

    Returns:
        num_tokens: first tokens of the run that were read; nll_full, nll_before, nll_after: mean losses in nats per
        token with full attention, without and with the changes; difference: of the last two, mean, low and high
        (95 %) and count; changes: by token, loss with the changes minus without, in nats, 0 for the first;
        other_top: positions whose most probable token differs; layers: from the first changed one, each with moved
        (tokens in another group), kept_before and kept_after (share of pairs).
    """
    measured = service.part(WhatIfs)
    answer = done_here("what_if", lambda job: measured.measure(run_id, changes, progress=job.step))
    by_token = np.frombuffer(base64.b64decode(answer["changes"]), dtype=np.float32)
    return {**answer, "changes": by_token.tolist()}


def beside(service: Service, run_id: str, other: str) -> dict[str, Any]:
    """Two runs of exactly the same tokens, the second one's groups matched with those of the first.
    Returns:
        layers: for each its number, names (group of the first run for each of the second, -1 without a partner),
        overlap (share of tokens in matched groups), rand (adjusted Rand index); top: by layer, the group of every
        token in the second run under the first one's numbers, null without a partner; losses: Focus of the second
        run in nats, null for the first token; difference: second minus first, mean, low and high (95 %) in nats
        per token, and count of tokens.
    """
    check_run(service.database, run_id)
    answer = runs.compare_runs(service, run_id, other)
    groups = np.frombuffer(base64.b64decode(answer["top"]), dtype=np.uint8)
    by_layer = groups.reshape(len(answer["layers"]), len(answer["losses"])).tolist()
    top = [[None if group == runs.NO_PARTNER else group for group in layer] for layer in by_layer]
    return {**answer, "top": top}
