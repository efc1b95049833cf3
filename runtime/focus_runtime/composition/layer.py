"""What one attention module does while Focus is composed: route its hidden states, then attend.

transformers calls `focus_forward` with queries, keys and values after QK-norm, rotary embedding and cache update; hooks
before and after the module read the hidden states and check that the call was made.

The state of a layer, and of the composition it belongs to, is defined in state.py. call.py prepares an attention call,
own.py is the layer's own attention, sparse.py is Focus, few_calls.py computes heads of unequal settings together,
step.py and gpu_step.py compute decode steps, gpu_text.py routes on a GPU.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils.generic import TransformersKwargs

from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.cache import GroupHistory, check_continues, history_of, layer_of
from focus_runtime.composition.call import Call, checked_call, of_one_size
from focus_runtime.composition.documents import PACKED, Documents, by_token, documents_of
from focus_runtime.composition.factors import with_factors
from focus_runtime.composition.gpu_step import step_on_gpu
from focus_runtime.composition.gpu_text import decided_on_gpu, text_on_gpu
from focus_runtime.composition.own import own_attention
from focus_runtime.composition.sparse import sparse_attention
from focus_runtime.composition.state import STATE, DecidedText, FocusLayer, is_plain
from focus_runtime.composition.step import attend_step, decide_and_attend, defers, is_step
from focus_runtime.composition.text_sinks import with_text_sinks
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL, attention_implementation
from focus_runtime.routing.router import Assignment, CentroidRouter

IMPLEMENTATION = "focus"  # names that begin with it are ours
# Arguments of an attention call that Focus applies, or that say nothing about which pairs attend.
UNDERSTOOD = frozenset(TransformersKwargs.__annotations__) | {
    "sliding_window",
    "use_cache",
    "cache_position",
    "return_dict",
    "logits_to_keep",
}
MEANINGS = {
    "indices": "its own sparse attention",
    "position_bias": "a learned position bias",
    "sinks": "a sink a token",
}


def refuse_empty(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pre-hook of the model: refuse a text without tokens, of which transformers raises several unclear errors.

    Args:
        module, args, kwargs: as torch passes them to a forward pre-hook.

    Raises:
        InputError: the text is empty.
    """
    ids = args[0] if args else kwargs.get("input_ids")
    if isinstance(ids, Tensor) and ids.numel() == 0:
        raise InputError("the text is empty", expected="at least one token in every row of input_ids")


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
    cache = _cache_of(kwargs)
    cached = None if cache is None else layer_of(cache, layer.cache_layer)
    current.cached, router = cached, layer.router
    mask = by_token(kwargs.get("attention_mask"), layer.index, beside=owner.checking)
    current.documents = documents = documents_of(mask, kwargs, current.documents)
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
    padding = None if mask is None else mask.bool()
    if steps and documents is None and defers(layer, hidden, padding):
        current.hidden = hidden
    else:
        _decide(layer, hidden, padding, documents)


def _cache_of(kwargs: dict[str, Any]) -> Any:
    """The cache that an attention module was given: `cache` since transformers 5.24, else by one of its old names."""
    for name in ("cache", "past_key_values", "layer_past"):
        cache = kwargs.get(name)
        if cache is not None:
            return cache
    return None


def _decide(layer: FocusLayer, hidden: Tensor, padding: Tensor | None, documents: Documents | None = None) -> None:
    """Decide the groups of the new tokens."""
    owner, current, router = layer.owner, layer.current_pass, layer.router
    assert router is not None, "only layers with a router are routed"
    config = owner.config
    with owner.seconds("routing"):
        decided = decided_on_gpu(layer, hidden, padding) if documents is None else None
        if decided is not None:
            current.decide(decided)
            return
        if documents is not None and config.assignment == "sinkhorn":
            assignment = _assigned_by_document(router, hidden, documents)
        else:
            assignment = router.assign(hidden, padding=padding, assignment=config.assignment)
        if config.text_sinks is not None:
            seen = 0 if current.history is None else current.history.seen
            own = None if padding is None else padding[:, seen : seen + hidden.shape[1]]
            assignment = with_text_sinks(
                assignment, hidden, own, current.history, config, layer.index, owner.found_sinks, documents
            )
        edit = owner.edits.get(layer.index)
        if edit is not None:
            assignment = edit.applied(assignment, 0 if current.history is None else current.history.seen, config.top_k)
        current.assignment = assignment


def _assigned_by_document(router: CentroidRouter, hidden: Tensor, documents: Documents) -> Assignment:
    """Groups that Sinkhorn's sums over each document decide; padding has none."""
    probabilities = torch.zeros(*hidden.shape[:2], router.config.num_groups, device=hidden.device)
    membership_BT = torch.zeros(hidden.shape[:2], dtype=torch.int64, device=hidden.device)
    for span in documents.spans:
        tokens = slice(span.start, span.stop)
        own = router.assign(hidden[span.rows, tokens], assignment="sinkhorn")
        probabilities[span.rows, tokens], membership_BT[span.rows, tokens] = own.probabilities, own.membership
    return Assignment(probabilities, membership_BT, router.potential)


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
        running = attention_implementation(layer.owner.model)
        if not running.startswith(IMPLEMENTATION):
            raise ModelError(
                f"the attention implementation was changed to {running!r} after Focus was composed",
                fix="call detach(), which gives the model its own implementation back, then compose again",
            )
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
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers.

    Args:
        module: the attention module.
        query: (B, Hq, Tq, D) after norms and rotary embedding; key: (B, Hkv, Tk, D), value: (B, Hkv, Tk, Dv), the cache
            included.
        attention_mask: what `focus_mask` returned; None when all tokens are real and every row is one text.
        scaling: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        dropout: probability, for the layer's own attention in training.
        s_aux: (Hq,) learned sinks, one more logit for every query of a head.
        kwargs: further arguments of transformers; those that Focus does not know are refused.

    Returns:
        (B, Tq, Hq, Dv) and no weights.
    """
    layer: FocusLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            f"Focus was not composed onto this {type(module).__name__}: it belongs to another model with the same "
            "configuration object, or another module of its model has the same layer number",
            fix="give every model its own copy of the configuration, or call detach() on the other model first",
        )
    current = layer.current_pass
    first = not current.called or current.history is None
    current.called = True
    _refuse_unknown(layer, kwargs)
    mask_BT = by_token(attention_mask, layer.index, beside=layer.owner.checking)
    current.documents = documents_of(mask_BT, kwargs, current.documents)
    scoring, size = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap), value.shape[3]
    if key.shape[3] != size:
        query, key, value = of_one_size(query, key, value)
    if dropout and layer.router is not None:
        _warn_of_dropout()
    call = Call(query, key, value, mask_BT, 0, scoring, dropout, s_aux)
    if current.documents is not None:
        out_BQHD = _each_document(module, layer, call, current.documents)
    else:
        few_BQHD = _in_few_steps(layer, call) if first and s_aux is None else None
        out_BQHD = _attend(module, layer, call) if few_BQHD is None else few_BQHD
    current.hidden = None
    layer.owner.seconds.calls += 1
    return (out_BQHD if out_BQHD.shape[3] == size else out_BQHD[..., :size]).contiguous(), None  # some models view it


@functools.cache  # once
def _warn_of_dropout() -> None:
    warnings.warn(
        "layers that run Focus leave out attention_dropout; set it to 0 in the model's configuration, or train in "
        "evaluation mode",
        stacklevel=2,
    )


def _in_few_steps(layer: FocusLayer, call: Call) -> Tensor | None:
    """Whole texts and decode steps by kernels that do most of it at once, (B, Q, H, D); None where none takes them."""
    current, scoring = layer.current_pass, call.scoring
    tensors = (call.query, call.key, call.value)
    if call.padding is not None:
        return None
    hidden, decided = current.hidden, current.decided
    if type(decided) is DecidedText and hidden is None:
        text_BQHD = text_on_gpu(layer, decided, *tensors, scoring.scale, scoring.softcap)
        if text_BQHD is not None:
            return text_BQHD
    if is_step(layer, *tensors):
        history = current.history
        assert history is not None, "see `is_step`"
        query, key, value = tensors
        query = with_factors(layer, query, history.seen, key.shape[1])
        if hidden is not None:
            return decide_and_attend(layer, hidden, query, key, value, scoring)
        return attend_step(layer, query, key, value, scoring)
    return None if hidden is None else step_on_gpu(layer, hidden, *tensors, scoring)


def _attend(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """One attention call, (B, Q, H, D), whose tensors may hold more keys than the text."""
    owner, current = layer.owner, layer.current_pass
    if current.hidden is not None:
        _decide_late(layer, current.hidden)
    call = checked_call(layer, call)
    with owner.seconds("attention"):
        own = owner.measuring_full or layer.router is None
        return own_attention(module, layer, call) if own else sparse_attention(module, layer, call)


def _each_document(module: nn.Module, layer: FocusLayer, call: Call, documents: Documents) -> Tensor:
    """Every document as a separate text, (B, Q, H, D); padding returns zeros."""
    owner, current = layer.owner, layer.current_pass
    focused = layer.router is not None and not owner.measuring_full
    if focused and (current.history is not None or not is_plain(owner, gated=True) or owner.edits):
        raise InputError(
            f"layer {layer.index} got packed documents with a cache, or while single tokens are changed or measured",
            expected="packed documents in a separate pass, without a cache",
            fix=PACKED,
        )
    (batch, heads, new, size), length = call.query.shape, call.key.shape[2]
    assignment = current.assignment
    before = (length if current.cached is None else min(length, int(current.cached.get_seq_length()))) - new
    out_BQHD = call.query.new_zeros(batch, new, heads, size)
    for span in documents.spans:
        first, stop = max(span.start, before), min(span.stop, before + new)
        if first >= stop:
            continue
        rows, keys, queries = span.rows, slice(span.start, stop), slice(first - before, stop - before)
        part = replace(
            call,
            query=call.query[rows, :, queries],
            key=call.key[rows, :, keys],
            value=call.value[rows, :, keys],
            padding=None,
            total=stop - span.start,
        )
        if focused:
            assert assignment is not None, "the pre-hook runs before attention"
            current.assignment = assignment.part(rows, keys)
        out_BQHD[rows, queries] = _attend(module, layer, part)
    if focused:
        current.assignment = assignment
    return out_BQHD


def _refuse_unknown(layer: FocusLayer, kwargs: dict[str, Any]) -> None:
    """Refuse what may change the attention and Focus does not apply."""
    for name, value in kwargs.items():
        if value is not None and name not in UNDERSTOOD:
            meaning = f", {MEANINGS[name]}" if name in MEANINGS else ""
            raise ModelError(
                f"layer {layer.index} of this model passes {name!r} to its attention{meaning}; Focus does not know it",
                fix=OTHER_MODEL,
            )
    if kwargs.get("is_causal") is False:
        raise ModelError(
            f"layer {layer.index} of this model lets tokens attend to later ones (is_causal=False)", fix=OTHER_MODEL
        )
    requested = kwargs.get("sliding_window", layer.sliding) or None
    if requested != layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model asks for a sliding window of {requested} tokens, but its settings say "
            f"{layer.sliding}",
            fix="call detach() and compose again after changing the model",
        )
