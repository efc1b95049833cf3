"""What one attention module does while Focus is composed: route its hidden states, then attend.

transformers calls `focus_forward` with queries, keys and values after QK-norm, rotary embedding and cache update; hooks
before and after the module read the hidden states and check that the call was made.

The state of a layer, and of the composition it belongs to, is defined in state.py. call.py prepares an attention call,
own.py is the layer's own attention, sparse.py is Focus, few_calls.py computes heads of unequal settings together,
step.py and gpu_step.py compute decode steps, gpu_text.py routes on a GPU.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from focus_runtime.attention.scoring import Scoring
from focus_runtime.composition.cache import GroupHistory, check_continues, history_of, layer_of
from focus_runtime.composition.call import attention_call
from focus_runtime.composition.factors import with_factors
from focus_runtime.composition.gpu_step import step_on_gpu
from focus_runtime.composition.gpu_text import decided_on_gpu, text_on_gpu
from focus_runtime.composition.own import own_attention
from focus_runtime.composition.sparse import sparse_attention
from focus_runtime.composition.state import STATE, DecidedText, FocusLayer
from focus_runtime.composition.step import attend_step, decide_and_attend, defers, is_step
from focus_runtime.composition.text_sinks import with_text_sinks
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL

REFUSED = (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias"))


def route(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pre-hook of an attention module: find its cache layer, and decide the groups of the new tokens.

    Args:
        module, args, kwargs: as torch passes them to a forward pre-hook.
    """
    layer: FocusLayer = module.__dict__[STATE]
    owner, current = layer.owner, layer.current_pass  # looked up once: both cost time in every layer of a decode step
    current.called, current.cached, current.history, current.hidden = False, None, None, None
    if owner.paused:
        return
    cache = kwargs.get("cache")  # transformers 5.24 and newer
    if cache is None:
        cache = kwargs.get("past_key_values")
    cached = None if cache is None else layer_of(cache, layer.index)
    current.cached, router = cached, layer.router
    if owner.measuring_full or router is None:
        return
    steps = False
    if cached is not None:
        current.history = history = history_of(cached)
        steps = history.seen > 0
        if steps:
            _check_past(layer, history)
    hidden = args[0] if args else kwargs["hidden_states"]
    if router.config is not owner.config:  # setting an attribute of a module takes a microsecond and more
        router.config = owner.config
    padding = _padding(kwargs)
    if steps and defers(layer, hidden, padding):
        current.hidden = hidden
    else:
        _decide(layer, hidden, padding)


def _decide(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> None:
    """Decide the groups of the new tokens."""
    owner, current, router = layer.owner, layer.current_pass, layer.router
    assert router is not None, "only layers with a router are routed"
    config = owner.config
    with owner.seconds("routing"):
        decided = decided_on_gpu(layer, hidden, padding)
        if decided is not None:
            current.decide(decided)
            return
        assignment = router.assign(hidden, padding=padding, assignment=config.assignment)
        if config.text_sinks is not None:
            seen = 0 if current.history is None else current.history.seen
            own = None if padding is None else padding[:, seen : seen + hidden.shape[1]]
            assignment = with_text_sinks(
                assignment, hidden, own, current.history, config, layer.index, owner.found_sinks
            )
        edit = owner.edits.get(layer.index)
        if edit is not None:
            assignment = edit.applied(assignment, 0 if current.history is None else current.history.seen, config.top_k)
        current.assignment = assignment


def _decide_late(layer: FocusLayer, hidden: Tensor) -> None:
    """The same for tokens that were deferred and do not fit after all, as for some head sizes."""
    history = layer.current_pass.history
    assert history is not None, "see `defers`"
    history.seen -= hidden.shape[1]  # the cache has counted them since
    try:
        _decide(layer, hidden, None)
    finally:
        history.seen += hidden.shape[1]


def _check_past(layer: FocusLayer, history: GroupHistory) -> None:
    if layer.owner.config.assignment == "sinkhorn":
        raise InputError(
            "assignment 'sinkhorn' cannot continue from a key-value cache: its column sums run over the whole text, "
            "which does not exist yet while decoding",
            expected="assignment='causal', or the whole text in one forward pass",
            fix='compose with assignment="causal" (see calibrate_potentials), or pass use_cache=False',
        )
    if layer.owner.soft_gate is not None:
        raise InputError(
            "a training gate cannot continue from a key-value cache",
            expected="the whole text in one forward pass",
            fix="pass use_cache=False",
        )
    check_continues(history, layer.owner.writer, layer.index)


def _padding(kwargs: dict[str, Any]) -> Tensor | None:
    mask = kwargs.get("attention_mask")
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def check_called(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Hook after an attention module: check that it called `focus_forward` and did not run its own attention.

    Args:
        module, args, output: as torch passes them to a forward hook.

    Raises:
        ModelError: the module did not call transformers' attention interface.
    """
    layer: FocusLayer = module.__dict__[STATE]
    current = layer.current_pass
    current.cached, current.history, current.hidden = None, None, None  # the groups belong to the cache alone
    if not layer.owner.paused and not current.called:
        raise ModelError(
            f"{type(module).__name__} of {type(layer.owner.model).__name__} ran layer {layer.index} without calling "
            "transformers' attention interface, so Focus cannot reach it",
            fix=OTHER_MODEL,
        )


def focus_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers.

    Args:
        module: the attention module.
        query: (B, Hq, Tq, D) after norms and rotary embedding; key, value: (B, Hkv, Tk, D), the cache included.
        attention_mask: (B, Tk), True or 1 for real tokens; None when all are.
        scaling: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        dropout: probability, for the layer's own attention in training.
        kwargs: further arguments of transformers; those that change what attention means are refused.

    Returns:
        (B, Tq, Hq, D) and no weights.
    """
    layer: FocusLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            "Focus was composed onto another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    owner, current = layer.owner, layer.current_pass
    current.called = True
    _refuse_unsupported(layer, kwargs)
    hidden, decided = current.hidden, current.decided
    if type(decided) is DecidedText and attention_mask is hidden is None:
        text_BQHD = text_on_gpu(layer, decided, query, key, value, scaling, softcap)
        if text_BQHD is not None:
            owner.seconds.calls += 1
            return text_BQHD, None
    if attention_mask is None and is_step(layer, query, key, value):
        history = current.history
        assert history is not None, "see `is_step`"
        query = with_factors(layer, query, history.seen, key.shape[1])
        scoring = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap)
        if hidden is not None:
            out_BQHD = decide_and_attend(layer, hidden, query, key, value, scoring)
        else:
            out_BQHD = attend_step(layer, query, key, value, scoring)
        owner.seconds.calls += 1
        return out_BQHD, None
    if hidden is not None:
        if attention_mask is None:
            scoring = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap)
            stepped_BQHD = step_on_gpu(layer, hidden, query, key, value, scoring)
            if stepped_BQHD is not None:
                owner.seconds.calls += 1
                return stepped_BQHD, None
        _decide_late(layer, hidden)
    call = attention_call(layer, query, key, value, attention_mask, scaling, softcap, dropout)
    with owner.seconds("attention"):
        own = owner.measuring_full or layer.router is None
        out_BQHD = own_attention(module, layer, call) if own else sparse_attention(module, layer, call)
    owner.seconds.calls += 1
    return out_BQHD, None


def _refuse_unsupported(layer: FocusLayer, kwargs: dict[str, Any]) -> None:
    """Refuse arguments that change the attention and that Focus does not apply."""
    for name, what in REFUSED:
        if kwargs.get(name) is not None:
            raise ModelError(
                f"layer {layer.index} of this model uses {what}, which Focus does not support", fix=OTHER_MODEL
            )
    requested = kwargs.get("sliding_window", layer.sliding) or None
    if requested != layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model asks for a sliding window of {requested} tokens, but its settings say "
            f"{layer.sliding}",
            fix="call detach() and compose again after changing the model",
        )
