"""What one attention module does while Focus is composed: route its hidden states, then attend.

transformers calls `focus_forward` with queries, keys and values after QK-norm, rotary embedding and cache update; hooks
before and after the module read the hidden states and check that the call was made. groups.py decides the groups,
attend.py computes attention, decode.py and gpu.py are shorter ways of a decode step and of a text on a GPU.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.utils.generic import TransformersKwargs

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.attend import focused_attention, own_attention
from focus_runtime.composition.cache import START_OVER, GroupHistory, history_of, layer_of
from focus_runtime.composition.decode import decode_step, defers
from focus_runtime.composition.documents import PACKED, Documents, by_token, documents_of
from focus_runtime.composition.gpu import text_on_gpu
from focus_runtime.composition.groups import decide_groups
from focus_runtime.composition.state import STATE, Attend, Call, FocusLayer
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL, attention_implementation

IMPLEMENTATION = "focus"  # names that begin with it are ours
# Arguments of an attention call that Focus applies, or that say nothing about which pairs attend.
UNDERSTOOD = {"sliding_window", "use_cache", "cache_position", "return_dict", "logits_to_keep"}
UNDERSTOOD |= TransformersKwargs.__annotations__.keys()
DROPOUT = (
    "layers that run Focus leave out attention_dropout; set it to 0 in the model's configuration, or train in "
    "evaluation mode"
)
CACHES = ("cache", "past_key_values", "layer_past")
MEANINGS = {
    "indices": "its own sparse attention",
    "position_bias": "a learned position bias",
    "sinks": "a sink a token",
}


def refuse_empty(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pre-hook of the model: refuse a text without tokens, of which transformers raises several unclear errors."""
    ids = args[0] if args else kwargs.get("input_ids")
    if isinstance(ids, Tensor) and ids.numel() == 0:
        raise InputError("the text is empty", expected="at least one token in every row of input_ids")


def route(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pre-hook of an attention module: find its cache layer, and decide the groups of the new tokens."""
    layer: FocusLayer = module.__dict__[STATE]
    owner, router, current = layer.owner, layer.router, layer.current_pass
    current.release()
    current.called = False
    if owner.paused:
        return
    # `cache` since transformers 5.24, else one of its old names
    cache = next((own for name in CACHES if (own := kwargs.get(name)) is not None), None)
    current.cached = None if cache is None else layer_of(cache, layer.cache_layer)
    mask = _mask_of(layer, kwargs.get("attention_mask"))
    current.documents = documents_of(mask, kwargs, current.documents)
    if router is None or not layer.focused:
        return
    if current.cached is not None:
        current.history = history_of(current.cached)
        current.before = current.history.seen
        if current.before:
            _check_past(layer, current.history)
    if router.config is not owner.config:  # setting an attribute of a module takes two microseconds
        router.config = owner.config
    hidden = args[0] if args else kwargs["hidden_states"]
    padding = None if mask is None else mask.bool()
    if defers(layer, hidden, padding):
        current.hidden = hidden
    else:
        current.assignment = decide_groups(layer, hidden, padding)


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
    """The attention function registered with transformers; returns (B, Tq, Hq, Dv) and no weights.

    Args:
        query: (B, Hq, Tq, D) after norms and rotary embedding; key: (B, Hkv, Tk, D), value: (B, Hkv, Tk, Dv), the cache
            included.
        attention_mask: what `focus_mask` returned.
        scaling: factor on the scores; D^-0.5 when None.
        s_aux: (Hq,) learned sinks, one more logit for every query of a head.
    """
    layer: FocusLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            f"Focus was not composed onto this {type(module).__name__}: it belongs to another model with the same "
            "configuration object, or another module of its model has the same layer number",
            fix="give every model its own copy of the configuration, or call detach() on the other model first",
        )
    current = layer.current_pass
    current.called = True
    _refuse_unknown(layer, kwargs)
    mask_BT = _mask_of(layer, attention_mask)
    current.documents = documents_of(mask_BT, kwargs, current.documents)
    scoring, size = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap), value.shape[3]
    if key.shape[3] != size:  # as in multi-head latent attention; zeros change no product
        most = max(key.shape[3], size)
        query, key, value = (pad(x, (0, most - x.shape[3])) for x in (query, key, value))
    if dropout and layer.router is not None:
        warnings.warn(DROPOUT, stacklevel=2)
    call = Call(query, key, value, mask_BT, 0, scoring, dropout, s_aux)
    if current.documents is None:
        out_BQHD = attend(module, layer, call)
    else:
        out_BQHD = _attend_each_document(module, layer, call, current.documents)
    current.hidden = None
    layer.owner.seconds.calls += 1
    return (out_BQHD if out_BQHD.shape[3] == size else out_BQHD[..., :size]).contiguous(), None  # some models view it


def attend(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """One attention call, (B, Q, H, D), of texts that are a row each."""
    owner, current, focused, call = layer.owner, layer.current_pass, layer.focused, _checked(layer, call)
    short = None
    if focused and current.hidden is not None:
        short = decode_step(layer, current.hidden, call)
        if short is None:
            current.assignment = decide_groups(layer, current.hidden, None)
    elif focused and not owner.modes:
        short = text_on_gpu(layer, call)
    if short is not None:
        return short
    attending: Attend = focused_attention if focused else own_attention
    for mode in owner.modes:
        if focused or mode.full:
            attending = functools.partial(mode.attend, attending)
    with owner.seconds("attention"):
        return attending(module, layer, call)


def _checked(layer: FocusLayer, call: Call) -> Call:
    """A call as it came, without what a static cache holds beyond the text; `total` is 0 unless it is one document."""
    query, key, value = one_dtype(*rows_together(*call.tensors))
    current, padding = layer.current_pass, call.padding
    if call.total:
        total = call.total
    elif current.cached is not None:
        total = current.history.seen if current.history is not None else int(current.cached.get_seq_length())
    elif query.shape[2] != key.shape[2] and layer.router is not None:
        raise InputError(
            f"layer {layer.index} got {key.shape[2]} keys for {query.shape[2]} queries but no cache that Focus can "
            "find",
            expected="a cache passed to the model",
            fix="call the model with use_cache=False",
        )
    else:
        total = key.shape[2]
    if key.shape[2] > total:
        key, value = key[:, :, :total], value[:, :, :total]
        padding = None if padding is None else padding[:, :total]
    if padding is not None and padding.shape != (key.shape[0], key.shape[2]):
        raise InputError(
            f"attention_mask has shape {tuple(padding.shape)}",
            expected=f"{(key.shape[0], key.shape[2])}: one entry for every cached and new token",
            fix="pass the mask of the whole text, not of the new tokens only",
        )
    return replace(call, query=query, key=key, value=value, padding=padding, total=total)


def _attend_each_document(module: nn.Module, layer: FocusLayer, call: Call, documents: Documents) -> Tensor:
    """Every document as a separate text, (B, Q, H, D); padding returns zeros."""
    current = layer.current_pass
    if layer.focused and (current.history is not None or not all(mode.documents for mode in layer.owner.modes)):
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
        if layer.focused:
            assert assignment is not None, "the pre-hook runs before attention"
            current.assignment = assignment.part(rows, keys)
        out_BQHD[rows, queries] = attend(module, layer, part)
    current.assignment = assignment
    return out_BQHD


def _mask_of(layer: FocusLayer, mask: Any) -> Tensor | None:
    return by_token(mask, layer.index, beside=any(mode.checks for mode in layer.owner.modes))


def _check_past(layer: FocusLayer, history: GroupHistory) -> None:
    """Refuse to continue from tokens whose groups are unknown, of another composition, or not to be continued."""
    if layer.owner.config.assignment == "sinkhorn":
        raise InputError(
            "assignment 'sinkhorn' cannot continue from a key-value cache: its column sums run over the whole text, "
            "which does not exist yet while decoding",
            expected="assignment='causal', or the whole text in one forward pass",
            fix='compose with assignment="causal" (see calibrate_potentials), or pass use_cache=False',
        )
    if not all(mode.continues for mode in layer.owner.modes):
        raise InputError(
            "a training gate cannot continue from a key-value cache",
            expected="the whole text in one forward pass",
            fix="pass use_cache=False",
        )
    if history.length != history.seen:
        raise InputError(
            f"the key-value cache holds {history.seen} tokens in layer {layer.index} but groups of {history.length}: "
            "the others were computed without Focus",
            expected="a cache that was filled with Focus alone",
            fix=f"{START_OVER}, or continue inside full_attention()",
        )
    if history.written_by != layer.owner.writer:
        raise InputError(
            "the key-value cache was filled by another composition, or with another top_k or budget, so its groups "
            "mean something else",
            expected="one composition with the same settings from the first token on",
            fix=START_OVER,
        )


def check_called(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Hook after an attention module: check that it called `focus_forward` and did not run its own attention."""
    layer: FocusLayer = module.__dict__[STATE]
    current = layer.current_pass
    current.release()
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
