"""One text: full attention and Focus run on it, scored and timed, and what Focus decided kept as a `Trace`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.changes import read_changes
from focus_runtime.composition.observe import observe_routing
from focus_runtime.config import TextOptions
from focus_runtime.errors import Cancelled
from focus_runtime.measure.attention_mass import MASS_CAUSES, mass_under_groups
from focus_runtime.measure.loss import Predictions, check_positions, token_predictions
from focus_runtime.measure.memory import within_memory
from focus_runtime.measure.timing import MODES, both_passes, peak_memory_bytes, stages_apart, timed_pass, warm_up
from focus_runtime.models.devices import compute_devices, device_names, dtype_name, input_device
from focus_runtime.models.linear import linear_layers
from focus_runtime.models.structure import attention_modules, context_length, hooked
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.trace import HeadTrace, LayerGroups, LayerTrace, Timing, Trace
from focus_runtime.text.tokens import TokenizedText, special_notes, tokenize, vocabulary_piece
from focus_runtime.version import __version__

TARGET_REPEATS, MIN_REPEATS = 5, 3
TIMING_SECONDS = 18.0  # after which no repeat beyond the third is begun
LONG_TIMING_SECONDS = 5.0  # of repeats that are still to come, from which the numbers are given out before them
Progress = Callable[[str, float], None]


class Measured(NamedTuple):
    """What one setting does to some tokens: the groups by layer, predictions by mode, all timings, and the backends."""

    layers: list[LayerGroups]
    predicted: dict[str, Predictions]
    timings: list[Timing]
    backend: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Early:
    """What takes the trace of a long text with one timing of each mode, and then the timings of each further repeat.

    Neither is called where the repeats take less than `LONG_TIMING_SECONDS`, or more than timings is left to measure.
    """

    measured: Callable[[Trace], None]
    timed: Callable[[list[Timing]], None]


def analyze(
    model: Any,
    tokenizer: Any,
    text: str,
    centroids: Centroids,
    options: TextOptions,
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
        cancelled: called between stages and before every layer; True raises `Cancelled`.
        announce: called once, before any work, when the text is longer than the model's context.
    """
    tokens, ids = read_tokens(model, tokenizer, text, options)
    beyond = _beyond_context(model, len(tokens.ids))
    if beyond is not None:
        announce(beyond)
    step = _stopping(progress, cancelled)
    with (
        composed(model, centroids, options, ids.shape[1]) as focus,
        within_memory(model, read=lambda beginning: both_passes(focus, beginning)),
        stoppable(model, cancelled),
        torch.no_grad(),
    ):
        vectors: dict[int, Tensor] = {}  # of the latest pass, by layer
        with observe_routing(focus, on_embedding=vectors.__setitem__):
            predicted, first = _both_modes(focus, ids, step)
        layers = _layer_traces(focus, vectors)
        _ = [layer.retained_pairs for layer in layers]  # counts pairs now, not while the database is locked
        named = np.unique([predictions.token_ids for predictions in predicted.values()])
        trace = Trace(
            tokens,
            layers,
            {mode: predictions.nll for mode, predictions in predicted.items()},
            first,
            _info(focus, tokens, centroids, options) | {"model_id": model_id, "model_fingerprint": model_fingerprint},
            _notes(tokenizer, tokens, focus, centroids, options, layers),
            predicted,
            {token_id: vocabulary_piece(tokenizer, token_id) for token_id in named.tolist()},
        )
        trace.check_finite()
        count, seconds = _repeat_count(focus, options, first)
        if options.attention_mass or seconds * (count - 1) <= LONG_TIMING_SECONDS:
            early = None
        if early is not None:
            early.measured(trace)
        timings = first
        for more in _repeats(focus, ids, options, count, step):
            timings = timings + more
            if early is not None:
                early.timed(more)
        if options.attention_mass:  # after the timings, whose peak memory it would raise
            step("Attention mass", 0.96)
            layers = _with_mass(focus, ids, layers)
        return replace(trace, layers=layers, timings=timings)


def measure_setting(
    model: Any, centroids: Centroids, ids: Tensor, options: TextOptions, cancelled: Callable[[], bool]
) -> Measured:
    """Measure tokens, (1, T) on the model's device, as `analyze` measures a text."""
    step = _stopping(lambda stage, fraction: None, cancelled)
    with composed(model, centroids, options, ids.shape[1]) as focus, stoppable(model, cancelled), torch.no_grad():
        predicted, timings = _both_modes(focus, ids, step)
        layers = layer_groups(focus)
        for more in _repeats(focus, ids, options, _repeat_count(focus, options, timings)[0], step):
            timings = timings + more
        return Measured(layers, predicted, timings, focus.backend_names)


def read_tokens(model: Any, tokenizer: Any, text: str, options: TextOptions) -> tuple[TokenizedText, Tensor]:
    """The tokens of a text, and their ids, (1, T), on the model's device."""
    tokens = tokenize(tokenizer, text, max_tokens=options.max_tokens, special_tokens=options.special_tokens)
    check_positions(model, len(tokens.ids))
    return tokens, torch.tensor([tokens.ids], device=input_device(model))


@contextmanager
def composed(model: Any, centroids: Centroids, options: TextOptions, length: int) -> Iterator[FocusModel]:
    """Focus with its settings, and its changes for a text of that many tokens, on the model while the block runs."""
    with (
        compose(model, centroids, settings=options, backend=options.backend) as focus,
        focus.with_changes(read_changes(options.changes), length),
    ):
        yield focus


def stoppable(model: Any, cancelled: Callable[[], bool]) -> AbstractContextManager[None]:
    """While the block runs, every attention layer first checks whether to stop."""

    def check(*_: object) -> None:
        if cancelled():
            raise Cancelled("stopped")

    return hooked(module.register_forward_pre_hook(check) for module in attention_modules(model).values())


def _stopping(progress: Progress, cancelled: Callable[[], bool]) -> Progress:
    """The same progress, which ends the work between two stages where that was requested."""

    def step(stage: str, fraction: float) -> None:
        if cancelled():
            raise Cancelled("stopped")
        progress(stage, fraction)

    return step


def _both_modes(focus: FocusModel, ids: Tensor, step: Progress) -> tuple[dict[str, Predictions], list[Timing]]:
    """The predictions of both modes by token, and one timing of each; the Focus pass is the last one."""
    step("Warming up", 0.02)
    warm_up(focus, ids)
    step("Full attention", 0.05)
    timings, full_hidden = _timed(focus, ids, "full", 0)
    predicted = {"full": token_predictions(focus.model, full_hidden, ids)}
    step("Focus", 0.2)
    more, focus_hidden = _timed(focus, ids, "focus", 0)
    predicted["focus"] = token_predictions(focus.model, focus_hidden, ids)
    step("Counting pairs", 0.35)
    return predicted, timings + more


def _timed(focus: FocusModel, ids: Tensor, mode: str, repeat: int) -> tuple[list[Timing], Tensor]:
    """One prefill to the last hidden state, without the output embedding, timed by stage."""
    hidden, total = timed_pass(focus, ids, mode)
    stages = {"end_to_end": total, "attention": focus.seconds.attention + focus.seconds.routing}
    if mode == "focus":
        stages |= {stage: seconds for stage, seconds in focus.seconds.seconds.items() if stage != "attention"}
    peak = peak_memory_bytes(focus.model)
    return [Timing(mode, stage, repeat, seconds * 1000, peak) for stage, seconds in stages.items()], hidden


def _repeats(
    focus: FocusModel, ids: Tensor, options: TextOptions, count: int, step: Progress
) -> Iterator[list[Timing]]:
    """More repeats, full attention and Focus in turn, so that a drift of the machine hits both."""
    target = options.repeats or TARGET_REPEATS
    for repeat in range(1, count):
        timings: list[Timing] = []
        for mode in MODES:
            step(f"Timing, repeat {repeat + 1} of {count}", 0.4 + 0.55 * (repeat - 1) / max(1, target - 1))
            timings += _timed(focus, ids, mode, repeat)[0]
        yield timings


def _repeat_count(focus: FocusModel, options: TextOptions, first: list[Timing]) -> tuple[int, float]:
    """How often each mode is timed, the first time included, and the seconds that timing each once takes."""
    passes = 2 if stages_apart(compute_devices(focus.model)) else 1
    seconds = passes * sum(timing.milliseconds for timing in first if timing.stage == "end_to_end") / 1000
    within_budget = int(TIMING_SECONDS / max(seconds, 1e-9))
    return options.repeats or max(MIN_REPEATS, min(TARGET_REPEATS, within_budget)), seconds


def _with_mass(focus: FocusModel, ids: Tensor, layers: list[LayerTrace]) -> list[LayerTrace]:
    """The same layers with the share of full attention's probability inside the mask that was executed."""
    dropped = mass_under_groups(focus, ids, focus.head_masks())[0, :, :, MASS_CAUSES.index("dropped")].mean(dim=-1)
    kept = dict(zip(focus.focused_layers, (1.0 - dropped).tolist(), strict=True))
    return [replace(layer, attention_mass_retained=kept[layer.layer]) for layer in layers]


def layer_groups(focus: FocusModel) -> list[LayerGroups]:
    """What the latest pass decided, by layer."""
    masks, decided = focus.head_masks(), focus.assignments()
    membership = stacked([one.membership[0] for one in decided.values()])
    probabilities = stacked([one.probabilities[0].float() for one in decided.values()])
    executed = iter(stacked([mask.membership[0] for index in decided for mask in masks[index]]))
    return [
        LayerGroups(
            layer=index,
            membership=membership[place],
            probabilities=probabilities[place],
            heads=tuple(HeadTrace(mask.group, mask.rule, next(executed)) for mask in masks[index]),
        )
        for place, index in enumerate(decided)
    ]


def _layer_traces(focus: FocusModel, vectors: dict[int, Tensor]) -> list[LayerTrace]:
    """The same with what the groups were decided from; `vectors` has the routing vectors (1, T, G) of every layer."""
    modules, decided = attention_modules(focus.model), focus.assignments()
    traces = []
    for layer in layer_groups(focus):
        potential = decided[layer.layer].potential
        traces.append(
            LayerTrace(
                layer=layer.layer,
                membership=layer.membership,
                probabilities=layer.probabilities,
                heads=layer.heads,
                attention_kind=type(modules[layer.layer]).__name__,
                routing=vectors[layer.layer][0].float().cpu().numpy(),
                centroids=focus.routers[layer.layer].centroids.detach().float().cpu().numpy(),
                potential=(potential if potential.dim() == 1 else potential[0]).detach().float().cpu().numpy(),
            )
        )
    return traces


def stacked(parts: list[Tensor]) -> Any:
    """One array of tensors of one shape, which may lie on several GPUs."""
    return torch.stack([part.to(parts[0].device) for part in parts]).cpu().numpy()


def _info(focus: FocusModel, tokens: TokenizedText, centroids: Centroids, options: TextOptions) -> dict[str, Any]:
    model = focus.model
    return {
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
        "changes": list(map(str, read_changes(options.changes))),
        # what else decides the last digits
        "versions": versions() | {"threads": str(torch.get_num_threads())} | linear_layers(model),
    }


def versions() -> dict[str, str]:
    """Versions that can change a number; torch's says what it was built for, which its metadata may not."""
    own = {"focus-explorer": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return own | {name: version(name) for name in ("transformers", "numpy", "safetensors")}


def _notes(
    tokenizer: Any,
    tokens: TokenizedText,
    focus: FocusModel,
    centroids: Centroids,
    options: TextOptions,
    layers: list[LayerTrace],
) -> list[str]:
    notes = list(centroids.warnings)
    if options.changes:
        notes.append(f"Changed by hand: {', '.join(map(str, read_changes(options.changes)))}.")
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
    special, about_length = text_notes(tokenizer, tokens, focus)
    if length < 200:
        about_length.append(f"With {length} tokens, shares and perplexities are rough.")
    return special + notes + about_length


def text_notes(tokenizer: Any, tokens: TokenizedText, focus: FocusModel) -> tuple[list[str], list[str]]:
    """What a reader must know of a text: of the tokens before it, and of its length."""
    notes, length, whole = [], len(tokens.ids), focus.config.full_up_to
    if length < tokens.total_tokens:
        notes.append(f"The text was cut to its first {length:,} of {tokens.total_tokens:,} tokens.")
    beyond = _beyond_context(focus.model, length)
    if beyond is not None:
        notes.append(beyond)
    if length <= whole:
        notes.append(
            f"Windows and first tokens keep every pair of a text of up to {whole:,} tokens: Focus is full attention "
            "here."
        )
    return special_notes(tokenizer, tokens, focus.model.config), notes


def _beyond_context(model: Any, length: int) -> str | None:
    """What to say of a text that is longer than the model's context."""
    context = context_length(model)
    if context is None or length <= context:
        return None
    return (
        f"The text has {length:,} tokens, more than the {context:,} the model was trained for: perplexity beyond that "
        f"point is not meaningful. To cut it, set the longest text to {context} tokens (--max-tokens {context})."
    )
