"""Run a text through full attention and Focus and return a Trace."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.changes import Change
from focus_runtime.composition.heads import HeadMask
from focus_runtime.composition.observe import observe_routing
from focus_runtime.errors import Cancelled
from focus_runtime.mask.counts import count_pairs
from focus_runtime.measure.attention_mass import MASS_CAUSES, mass_under_groups
from focus_runtime.measure.loss import Predictions, check_positions, token_predictions
from focus_runtime.measure.memory import within_memory
from focus_runtime.measure.timing import both_passes, peak_memory_bytes, stages_apart, timed_pass, warm_up
from focus_runtime.models.devices import compute_devices, device_names, dtype_name, input_device
from focus_runtime.models.linear import linear_layers
from focus_runtime.models.structure import attention_modules, context_length
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.setting import stoppable
from focus_runtime.run.trace import HeadTrace, LayerTrace, PredictedTokens, Timing, Trace
from focus_runtime.text.special import DEFAULT
from focus_runtime.text.tokens import TokenizedText, special_notes, tokenize, vocabulary_piece
from focus_runtime.version import __version__

TARGET_REPEATS, MIN_REPEATS = 5, 3
LONG_TIMING_SECONDS = 5.0  # of repeats that are still to come, from which the numbers are given out before them
Progress = Callable[[str, float], None]
Measured = tuple[list[LayerTrace], dict[str, Predictions], list[Timing]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Early:
    """Who wants a long text's numbers before its timings are repeated.

    Attributes:
        measured: takes the trace, with one timing of each mode; not called where the repeats take less than
            `LONG_TIMING_SECONDS`, nor where more than timings is to be measured after them.
        timed: takes the timings of each further repeat, after `measured`.
    """

    measured: Callable[[Trace], None]
    timed: Callable[[list[Timing]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How a text is analysed.

    Attributes:
        top_k, window, num_sinks, window_growth, assignment: the centroid file's own when None.
        budget: layers and heads with settings of their own; the centroid file's when None, none when empty.
        max_tokens: analyse at most this many tokens.
        special_tokens: "auto" for what the tokenizer puts before a text, such as BOS, or "none" for no token.
        repeats: timed repeats of each mode; None means 5, or as few as 3 once `timing_seconds` are spent.
        timing_seconds: budget of the repeats beyond the third.
        seed: recorded; the run itself has no randomness.
        attention_mass: also measure how much of full attention's probability the mask keeps: one more pass.
        changes: made by hand to what Focus does.
    """

    top_k: int | None = None
    window: int | None = None
    num_sinks: int | None = None
    window_growth: tuple[int, int] | None = None
    assignment: str | None = None
    budget: tuple[HeadException, ...] | None = None
    backend: str = "auto"
    max_tokens: int | None = None
    special_tokens: str = DEFAULT
    repeats: int | None = None
    timing_seconds: float = 18.0
    seed: int = 0
    attention_mass: bool = False
    changes: tuple[Change, ...] = ()


def analyze(
    model: Any,
    tokenizer: Any,
    text: str,
    centroids: Centroids,
    options: RunOptions,
    *,
    model_id: str = "",
    model_fingerprint: str = "",
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
    announce: Callable[[str], None] = lambda message: None,
    early: Early | None = None,
) -> Trace:
    """Run full attention and Focus on one text, score both, time both, and keep what Focus decided.

    Args:
        tokenizer: the model's.
        text: what is read.
        options: settings that replace the centroid file's, and how often is timed.
        model_id, model_fingerprint: recorded in the trace.
        model: causal language model without Focus.
        centroids: routers with potentials (or assignment "sinkhorn").
        progress: called with a stage name and the fraction done, 0 to 1.
        cancelled: called between stages and before every layer; True raises `Cancelled`.
        announce: called once, before any work, when the text is longer than the model's context.
        early: gets the numbers of a long text before its timings are repeated.

    Raises:
        InputError: the text, settings and centroids do not fit together, or the text does not fit into the memory.
    """
    tokens = tokenize(tokenizer, text, max_tokens=options.max_tokens, special_tokens=options.special_tokens)
    ids = torch.tensor([tokens.ids], device=input_device(model))
    check_positions(model, len(tokens.ids))

    beyond = _beyond_context(model, len(tokens.ids))
    if beyond is not None:
        announce(beyond)

    def step(stage: str, fraction: float) -> None:
        if cancelled():
            raise Cancelled("stopped")
        progress(stage, fraction)

    with (
        _composed(model, centroids, options) as focus,
        focus.with_changes(options.changes, len(tokens.ids)),
        within_memory(model, read=lambda beginning: both_passes(focus, beginning)),
        stoppable(model, cancelled),
        torch.no_grad(),
    ):
        layers, predicted, timings = _measure(focus, ids, options, step)
        trace = Trace(
            tokens,
            layers,
            {mode: predictions.nll for mode, predictions in predicted.items()},
            timings,
            _info(model, focus, tokens, centroids, options, model_id, model_fingerprint),
            _notes(model, tokenizer, tokens, focus, centroids, options, layers),
            _with_pieces(tokenizer, predicted),
        )
        trace.check_finite()
        return _timed_again(focus, ids, options, trace, early, step)


def _timed_again(
    focus: FocusModel,
    ids: Tensor,
    options: RunOptions,
    trace: Trace,
    early: Early | None,
    step: Callable[[str, float], None],
) -> Trace:
    """The trace with all repeats of its timings, and what is measured after them."""
    if options.attention_mass or _repeats_seconds(focus, options, trace.timings) <= LONG_TIMING_SECONDS:
        early = None
    if early is not None:
        early.measured(trace)
    timings, layers = trace.timings, trace.layers
    for more in _repeats(focus, ids, options, trace.timings, step):
        timings = timings + more
        if early is not None:
            early.timed(more)
    if options.attention_mass:  # after the timings, whose peak memory it would raise
        step("Attention mass", 0.96)
        layers = _with_mass(focus, ids, layers)
    return replace(trace, layers=layers, timings=timings)


@contextmanager
def _composed(model: Any, centroids: Centroids, options: RunOptions) -> Iterator[FocusModel]:
    """Focus on the model while the block runs."""
    focus = compose(
        model,
        centroids,
        top_k=options.top_k,
        window=options.window,
        num_sinks=options.num_sinks,
        window_growth=options.window_growth,
        assignment=options.assignment,
        budget=options.budget,
        backend=options.backend,
    )
    try:
        yield focus
    finally:
        focus.detach()


def _measure(focus: FocusModel, ids: Tensor, options: RunOptions, step: Callable[[str, float], None]) -> Measured:
    """What Focus decided by layer, the predictions of both modes by token, and one timing of each mode."""
    vectors: dict[int, Tensor] = {}  # of the latest pass, by layer
    with observe_routing(focus, on_embedding=vectors.__setitem__):
        step("Warming up", 0.02)
        warm_up(focus, ids)
        step("Full attention", 0.05)
        timings, full_hidden = _timed(focus, ids, "full", 0)
        predicted = {"full": token_predictions(focus.model, full_hidden, ids)}
        step("Focus", 0.2)
        more, focus_hidden = _timed(focus, ids, "focus", 0)
        predicted["focus"] = token_predictions(focus.model, focus_hidden, ids)
        timings += more
        step("Counting pairs", 0.35)
        return _layers(focus, vectors), predicted, timings


def _beyond_context(model: Any, length: int) -> str | None:
    """What to say of a text that is longer than the model's context."""
    context = context_length(model)
    if context is None or length <= context:
        return None
    return (
        f"The text has {length:,} tokens, more than the {context:,} the model was trained for: perplexity beyond that "
        f"point is not meaningful. To cut it, set the longest text to {context} tokens (--max-tokens {context})."
    )


def _timed(focus: FocusModel, ids: Tensor, mode: str, repeat: int) -> tuple[list[Timing], Tensor]:
    """One forward pass to the last hidden state (prefill without the output embedding), timed by stage."""
    hidden, total = timed_pass(focus, ids, mode)
    stages = {"end_to_end": total, "attention": focus.seconds.attention + focus.seconds.routing}
    if mode == "focus":
        stages |= {stage: seconds for stage, seconds in focus.seconds.seconds.items() if stage != "attention"}
    peak = peak_memory_bytes(focus.model)
    return [Timing(mode, stage, repeat, seconds * 1000, peak) for stage, seconds in stages.items()], hidden


def _repeats(
    focus: FocusModel, ids: Tensor, options: RunOptions, first: list[Timing], step: Callable[[str, float], None]
) -> Iterator[list[Timing]]:
    """More repeats, full attention and Focus in turn, so that a drift of the machine hits both."""
    target, count = options.repeats or TARGET_REPEATS, _repeat_count(focus, options, first)
    for repeat in range(1, count):
        timings: list[Timing] = []
        for mode in ("full", "focus"):
            step(f"Timing, repeat {repeat + 1} of {count}", 0.4 + 0.55 * (repeat - 1) / max(1, target - 1))
            timings += _timed(focus, ids, mode, repeat)[0]
        yield timings


def _repeat_count(focus: FocusModel, options: RunOptions, first: list[Timing]) -> int:
    """How often each mode is timed, the first time included."""
    if options.repeats is not None:
        return options.repeats
    within_budget = int(options.timing_seconds / max(_pair_seconds(focus, first), 1e-9))
    return max(MIN_REPEATS, min(TARGET_REPEATS, within_budget))


def _repeats_seconds(focus: FocusModel, options: RunOptions, first: list[Timing]) -> float:
    return _pair_seconds(focus, first) * (_repeat_count(focus, options, first) - 1)


def _pair_seconds(focus: FocusModel, first: list[Timing]) -> float:
    """What timing each mode once takes."""
    passes = 2 if stages_apart(compute_devices(focus.model)) else 1
    return passes * sum(timing.milliseconds for timing in first if timing.stage == "end_to_end") / 1000


def _with_pieces(tokenizer: Any, predicted: dict[str, Predictions]) -> dict[str, PredictedTokens]:
    """The same predictions with the text of their tokens."""
    with_pieces = {}
    for mode, predictions in predicted.items():
        distinct = np.unique(predictions.token_ids).tolist()
        pieces = {token_id: vocabulary_piece(tokenizer, token_id) for token_id in distinct}
        with_pieces[mode] = PredictedTokens(predictions, pieces)
    return with_pieces


def _with_mass(focus: FocusModel, ids: Tensor, layers: list[LayerTrace]) -> list[LayerTrace]:
    """The same layers with the share of full attention's probability inside the mask that was executed."""
    dropped = mass_under_groups(focus, ids, focus.head_masks())[0, :, :, MASS_CAUSES.index("dropped")].mean(dim=-1)
    kept = dict(zip(focus.focused_layers, (1.0 - dropped).tolist(), strict=True))
    return [replace(layer, attention_mass_retained=kept[layer.layer]) for layer in layers]


def _layers(focus: FocusModel, vectors: dict[int, Tensor]) -> list[LayerTrace]:
    modules = attention_modules(focus.model)
    masks, traces = focus.head_masks(), []
    for index, assignment in focus.assignments().items():
        potential = assignment.potential if assignment.potential.dim() == 1 else assignment.potential[0]
        traces.append(
            LayerTrace(
                layer=index,
                attention_kind=type(modules[index]).__name__,
                membership=assignment.membership[0].cpu().numpy(),
                probabilities=assignment.probabilities[0].float().cpu().numpy(),
                routing=vectors[index][0].float().cpu().numpy(),
                centroids=focus.routers[index].centroids.detach().float().cpu().numpy(),
                potential=potential.detach().float().cpu().numpy(),
                heads=tuple(map(_head_trace, masks[index])),
                sliding_window=masks[index][0].rule.sliding_window,
            )
        )
    return traces


def _head_trace(mask: HeadMask) -> HeadTrace:
    membership = mask.membership[0].cpu().numpy()
    return HeadTrace(mask.group, membership, count_pairs(membership, mask.rule))


def _info(
    model: Any,
    focus: FocusModel,
    tokens: TokenizedText,
    centroids: Centroids,
    options: RunOptions,
    model_id: str,
    model_fingerprint: str,
) -> dict[str, Any]:
    return {
        "model_id": model_id,
        "model_fingerprint": model_fingerprint,
        "centroids_name": centroids.name,
        "centroids_sha256": centroids.sha256,
        "config": focus.config.to_dict(),
        "num_tokens": len(tokens.ids),
        "special_tokens": options.special_tokens,
        "added_tokens": list(tokens.added),
        "device": device_names(model),
        "dtype": dtype_name(model),
        "backend": focus.backend_names,
        "requested_backend": options.backend,
        "seed": options.seed,
        "changes": list(map(str, options.changes)),
        # what else decides the last digits
        "versions": versions() | {"threads": str(torch.get_num_threads())} | linear_layers(model),
    }


def versions() -> dict[str, str]:
    """Versions that can change a number; torch's says what it was built for, which its metadata may not."""
    packages = {name: version(name) for name in ("transformers", "numpy", "safetensors")}
    return {
        "focus-explorer": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **packages,
    }


def _notes(
    model: Any,
    tokenizer: Any,
    tokens: TokenizedText,
    focus: FocusModel,
    centroids: Centroids,
    options: RunOptions,
    layers: list[LayerTrace],
) -> list[str]:
    notes = special_notes(tokenizer, tokens, model.config) + centroids.warnings
    if options.changes:
        notes.append(f"Changed by hand: {', '.join(map(str, options.changes))}.")
    kept = len(centroids.routers) - len(layers)
    if kept:
        notes.append(
            f"{kept} layer(s) attend through a sliding window of their own; Focus ran on the other {len(layers)}."
        )
    length = len(tokens.ids)
    short = [layer.sliding_window for layer in layers if layer.sliding_window is not None]
    if short and min(short) < length:
        notes.append(
            f"{len(short)} layer(s) attend to their last {min(short):,} tokens only, with or without Focus; pairs "
            "farther apart count as dropped."
        )
    if length < tokens.total_tokens:
        notes.append(f"The text was cut to its first {length:,} of {tokens.total_tokens:,} tokens.")
    beyond = _beyond_context(model, length)
    if beyond is not None:
        notes.append(beyond)
    if length <= focus.config.full_up_to:
        notes.append(
            f"Windows and first tokens keep every pair of a text of up to {focus.config.full_up_to:,} tokens: Focus is "
            "full attention here."
        )
    if length < 200:
        notes.append(f"With {length} tokens, shares and perplexities are rough.")
    return notes
