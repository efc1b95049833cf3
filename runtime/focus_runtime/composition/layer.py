"""What one attention module does while Focus is composed: route its hidden states, then attend.

transformers calls `focus_forward` with queries, keys and values after QK-norm, rotary embedding and cache update; hooks
before and after the module read the hidden states and check that the call was made.

`Composition` is the state that all layers of a composition share; `FocusModel` in attach.py provides it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention.backward import straight_through_attention
from focus_runtime.attention.checks import needs_gradient
from focus_runtime.attention.dispatch import attend, choose_backend, rows_together
from focus_runtime.attention.reference import token_positions
from focus_runtime.attention.sliding import WindowedFocus, sliding_attention
from focus_runtime.attention.soft import gated_attention
from focus_runtime.clock import PassClock
from focus_runtime.composition.cache import START_OVER, GroupHistory, check_continues, history_of, layer_of
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL
from focus_runtime.routing.router import Assignment, CentroidRouter

STATE = "_focus_layer"
ANY_STEP = ("reference", "masked", "decode", "fused", "flex")  # backends that take fewer queries than keys
DENSE_UP_TO = 4096  # tokens up to which training on the hard mask computes all pairs, dropped ones included


@dataclass
class SoftGate:
    """Settings of a training forward pass; see `gated_attention`.

    Attributes:
        gate: "log" or "paper".
        steepness: lambda of the paper gate.
        hard: the hard mask with straight-through gradients. On the CPU beyond 4,096 tokens in memory linear in the
            text, and then without a gradient from dropped pairs (`straight_through_attention`).
    """

    gate: str = "log"
    steepness: float = 8.0
    hard: bool = False


class Composition(Protocol):
    """State that all layers of one composition share.

    Attributes:
        model: the frozen model.
        config: settings in force.
        backend: attention backend, "auto" or a name.
        seconds: clock of routing and attention.
        measuring_full: every layer runs its own full attention, timed.
        paused: the model runs its own attention implementation; nothing is routed.
        soft_gate: set during training forward passes.
    """

    model: nn.Module
    config: FocusConfig
    backend: str
    seconds: PassClock
    measuring_full: bool
    paused: bool
    soft_gate: SoftGate | None

    @property
    def writer(self) -> str:
        """Identifies who assigned a cache's groups."""


class Pass(threading.local):
    """State of one layer during a forward pass of this thread; between passes, of the latest one.

    Attributes:
        assignment: the groups of that pass's tokens.
        cached, history: the cache layer of a running pass, and the groups stored with its keys.
        called: whether the running pass has reached the attention interface.
        backend: backend of the latest Focus call; empty before one.
    """

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.cached: Any = None
        self.history: GroupHistory | None = None
        self.called = False
        self.backend = ""

    def __reduce__(self) -> tuple[type[Pass], tuple[()]]:
        """A copied or pickled model starts without a pass."""
        return Pass, ()


@dataclass(slots=True)
class FocusLayer:
    """State of one composed attention module.

    Attributes:
        index: layer number.
        router: None where the layer keeps its own attention.
        owner: state shared by all layers.
        sliding: the layer's own window in tokens, None for a global layer.
        current_pass: state of a forward pass; each thread has its own, so that several may run the model at once.
    """

    index: int
    router: CentroidRouter | None
    owner: Composition
    sliding: int | None = None
    current_pass: Pass = field(default_factory=Pass)


@dataclass(slots=True)
class Call:
    """One attention call: the tensors, cropped to the tokens that exist, and how scores are formed.

    Attributes:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        padding: (B, Tk) bool, True for real tokens, or None when all are.
        total: tokens of the whole text so far; more than Tk where a sliding cache forgot some.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    padding: Tensor | None
    total: int
    scale: float
    softcap: float | None
    dropout: float


def route(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the module runs: find its cache layer, and decide the groups of the new tokens."""
    layer: FocusLayer = getattr(module, STATE)
    owner = layer.owner
    layer.current_pass.called, layer.current_pass.cached, layer.current_pass.history = False, None, None
    if owner.paused:
        return
    cache = kwargs.get("past_key_values")
    if cache is not None:
        layer.current_pass.cached = layer_of(cache, layer.index)
    if owner.measuring_full or layer.router is None:
        return
    if layer.current_pass.cached is not None:
        layer.current_pass.history = history_of(layer.current_pass.cached)
        _check_past(layer, layer.current_pass.history)
    hidden = args[0] if args else kwargs["hidden_states"]
    layer.router.config = owner.config
    with owner.seconds("routing"):
        layer.current_pass.assignment = layer.router.assign(
            hidden, padding=_padding(kwargs), assignment=owner.config.assignment
        )


def _check_past(layer: FocusLayer, history: GroupHistory) -> None:
    if history.seen == 0:
        return
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
    """After the module ran: without a call of `focus_forward`, full attention would pass for Focus."""
    layer: FocusLayer = getattr(module, STATE)
    called, layer.current_pass.cached, layer.current_pass.history = (
        layer.current_pass.called,
        None,
        None,
    )  # the groups belong to the cache alone
    if not layer.owner.paused and not called:
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
    """The attention function registered with transformers; returns (B, T, H, D) and no weights."""
    layer: FocusLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            "Focus was composed onto another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    layer.current_pass.called = True
    owner = layer.owner
    _refuse_unsupported(layer, kwargs)
    call = _call(layer, query, key, value, attention_mask, scaling, softcap, dropout)
    with owner.seconds("attention"):
        if owner.measuring_full or layer.router is None:
            out = _own(module, layer, call)
        else:
            out = _sparse(layer, call).transpose(1, 2)
    owner.seconds.calls += 1
    return out, None


def _refuse_unsupported(layer: FocusLayer, kwargs: dict[str, Any]) -> None:
    """Arguments that change what attention means must not be dropped silently."""
    for name, what in (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias")):
        if kwargs.get(name) is not None:
            raise ModelError(
                f"layer {layer.index} of this model uses {what}, which Focus does not support", fix=OTHER_MODEL
            )
    given = kwargs.get("sliding_window", layer.sliding) or None
    if given != layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model asks for a sliding window of {given} tokens, but its settings say "
            f"{layer.sliding}",
            fix="call detach() and compose again after changing the model",
        )


def _call(
    layer: FocusLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    dropout: float,
) -> Call:
    """Crop what a static cache holds beyond the text, and check that mask and keys fit."""
    if key.shape != value.shape or query.shape[3] != key.shape[3]:
        raise ModelError(
            f"layer {layer.index} has queries of size {query.shape[3]}, keys of {key.shape[3]} and values of "
            f"{value.shape[3]}, which Focus does not support",
            expected="one head size",
            fix=OTHER_MODEL,
        )
    query, key, value = rows_together(query, key, value)
    if not query.dtype == key.dtype == value.dtype:  # autocast leaves what the rotary embedding touched in fp32
        device = query.device.type
        wanted = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
        query, key, value = query.to(wanted), key.to(wanted), value.to(wanted)
    total = key.shape[2]
    if layer.current_pass.cached is not None:
        total = (
            layer.current_pass.history.seen
            if layer.current_pass.history is not None
            else int(layer.current_pass.cached.get_seq_length())
        )
    elif query.shape[2] != total:
        raise InputError(
            f"layer {layer.index} got {total} keys for {query.shape[2]} queries but no cache that Focus can find",
            expected="a cache passed as past_key_values",
            fix="call the model with use_cache=False",
        )
    if key.shape[2] > total:
        key, value = key[:, :, :total], value[:, :, :total]
        padding = None if padding is None else padding[:, :total]
    if padding is not None and padding.shape != (key.shape[0], key.shape[2]):
        raise InputError(
            f"attention_mask has shape {tuple(padding.shape)}",
            expected=f"{(key.shape[0], key.shape[2])}: one entry for every cached and new token",
            fix="pass the mask of the whole text, not of the new tokens alone",
        )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return Call(query, key, value, None if padding is None else padding.bool(), total, scale, softcap, dropout)


def _own(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """The layer's own attention, (B, T, H, D)."""
    if layer.sliding is None or call.key.shape[2] <= layer.sliding:
        return _full(module, call)
    return sliding_attention(
        call.query,
        call.key,
        call.value,
        sliding_window=layer.sliding,
        scale=call.scale,
        softcap=call.softcap,
        key_padding=call.padding,
    ).transpose(1, 2)


def _full(module: nn.Module, call: Call) -> Tensor:
    """Full causal attention, (B, T, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    query, key, value, padding = call.query, call.key, call.value, call.padding
    shape = (key.shape[0], key.shape[2])
    if call.softcap is not None:
        everything = torch.ones(shape, dtype=torch.int64, device=key.device)
        out = attend(
            query,
            key,
            value,
            everything,
            backend="masked",
            window=shape[1],
            num_sinks=0,
            scale=call.scale,
            softcap=call.softcap,
            key_padding=padding,
        )[0]
        return out.transpose(1, 2)
    if padding is None and 1 < query.shape[2] != shape[1]:  # SDPA aligns is_causal to the first key, not to the last
        padding = torch.ones(shape, dtype=torch.bool, device=key.device)
    mask = None if padding is None else _causal_mask(padding, query, key)
    causal = mask is None and query.shape[2] > 1
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(module, query, key, value, mask, scaling=call.scale, is_causal=causal, dropout=call.dropout)[0]


def _causal_mask(padding: Tensor, query: Tensor, key: Tensor) -> Tensor:
    length_q, length_k = query.shape[2], key.shape[2]
    rows = torch.arange(length_k - length_q, length_k, device=query.device)
    causal = torch.arange(length_k, device=query.device)[None, :] <= rows[:, None]
    diagonal = torch.arange(length_k, device=query.device)[None, :] == rows[:, None]
    return ((causal & padding[:, None, :]) | diagonal)[:, None]  # the diagonal keeps padded rows finite


def _sparse(layer: FocusLayer, call: Call) -> Tensor:
    """Focus, (B, H, T, D)."""
    owner, config = layer.owner, layer.owner.config
    if owner.soft_gate is not None:
        return _gated(layer, call)
    membership = _groups(layer, call)
    if layer.sliding is not None and call.total > layer.sliding:
        return sliding_attention(
            call.query,
            call.key,
            call.value,
            sliding_window=layer.sliding,
            scale=call.scale,
            softcap=call.softcap,
            key_padding=call.padding,
            focus=WindowedFocus(membership, _positions(layer, call, membership), config.window, config.num_sinks),
        )
    layer.current_pass.backend = _backend(owner.backend, call, membership, config)
    return attend(
        call.query,
        call.key,
        call.value,
        membership,
        backend=layer.current_pass.backend,
        window=config.window,
        num_sinks=config.num_sinks,
        key_padding=call.padding,
        scale=call.scale,
        softcap=call.softcap,
        return_lse=False,
        clock=owner.seconds,
    )[0]


def _backend(wanted: str, call: Call, membership: Tensor, config: FocusConfig) -> str:
    continued = call.query.shape[2] < call.key.shape[2]  # where a backend chosen for prefill would refuse
    if wanted != "auto" and not (continued and wanted not in ANY_STEP):
        return wanted
    return choose_backend(
        call.query,
        call.key,
        membership,
        window=config.window,
        num_sinks=config.num_sinks,
        key_padding=call.padding,
        softcap=call.softcap,
        gradient=needs_gradient(call.query, call.key, call.value),
        value=call.value,
    )


def _groups(layer: FocusLayer, call: Call) -> Tensor:
    """Membership of the keys at hand, (B, Tk); the new tokens' is put beside their keys on the way."""
    assert layer.current_pass.assignment is not None, "the pre-hook runs before attention"
    new, history = layer.current_pass.assignment.membership, layer.current_pass.history
    if history is None or layer.owner.config.assignment == "sinkhorn":
        return new  # a first pass: nothing will continue from sinkhorn groups
    count = new.shape[1]
    history.append(new, None if call.padding is None else call.padding[:, -count:], layer.owner.writer)
    membership = history.membership
    if history.length != history.seen or (layer.sliding is None and call.key.shape[2] != history.length):
        raise InputError(
            f"layer {layer.index} got {call.key.shape[2]} keys but groups of {history.length} tokens",
            expected="a cache that nothing but the model and generate() has changed",
            fix=START_OVER,
        )
    return membership[:, history.length - call.key.shape[2] :]


def _positions(layer: FocusLayer, call: Call, membership: Tensor) -> Tensor:
    """(B, Tk) positions of the keys at hand, counted from each text's first real token."""
    if layer.current_pass.history is None or layer.current_pass.history.first_real is None:
        return token_positions(membership, call.padding)
    count = torch.arange(call.total - call.key.shape[2], call.total, device=membership.device)
    return count - layer.current_pass.history.first_real[:, None]


def _gated(layer: FocusLayer, call: Call) -> Tensor:
    owner, config = layer.owner, layer.owner.config
    assert owner.soft_gate is not None
    assert layer.current_pass.assignment is not None
    if layer.sliding is not None and call.total > layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model attends to the last {layer.sliding} tokens only, but the training "
            f"text has {call.total}",
            expected=f"at most {layer.sliding} tokens",
            fix="train on shorter texts",
        )
    gate = owner.soft_gate
    plain = call.softcap is None and call.padding is None and call.query.device.type == "cpu"
    if gate.hard and plain and call.total > DENSE_UP_TO:
        return straight_through_attention(
            call.query,
            call.key,
            call.value,
            layer.current_pass.assignment.probabilities,
            top_k=config.top_k,
            window=config.window,
            num_sinks=config.num_sinks,
            scale=call.scale,
        )
    return gated_attention(
        call.query,
        call.key,
        call.value,
        layer.current_pass.assignment.probabilities,
        window=config.window,
        num_sinks=config.num_sinks,
        gate=gate.gate,
        steepness=gate.steepness,
        scale=call.scale,
        hard_top_k=config.top_k if gate.hard else None,
        softcap=call.softcap,
    )
