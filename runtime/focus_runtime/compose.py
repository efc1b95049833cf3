"""Attach Focus to a frozen Hugging Face model and take it off again, through transformers' attention interface.

Hidden states reach the routers by a pre-hook on each attention module; queries, keys and values arrive after QK-norm,
rotary embedding and cache update. The model's weights and code are never changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention import focus_attention
from focus_runtime.attention.soft import gated_attention
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError, ModelError
from focus_runtime.router import Assignment, CentroidRouter

IMPLEMENTATION = "focus"
_STATE = "_focus_layer"
_OTHER_MODEL = "use a Llama, Mistral, Qwen, OLMo, Gemma, Phi or GPT-2 style model"


@dataclass(slots=True)
class FocusLayer:
    """What one composed attention module holds while it runs."""

    index: int
    router: CentroidRouter | None
    owner: FocusModel
    assignment: Assignment | None = None


@dataclass(slots=True)
class StageSeconds:
    """Seconds spent since the last reset; attention excludes routing."""

    routing: float = 0.0
    attention: float = 0.0
    calls: int = 0


@dataclass
class SoftGate:
    """Settings of a training forward pass; see `gated_attention`."""

    gate: str = "log"
    steepness: float = 8.0
    hard: bool = False


def attention_modules(model: nn.Module) -> dict[int, nn.Module]:
    """Causal self-attention modules by layer number.

    Raises:
        ModelError: the model has none that transformers' attention interface can reach.
    """
    found: dict[int, nn.Module] = {}
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        causal = getattr(module, "is_causal", True)  # encoders look ahead; Focus would change what they mean
        if isinstance(index, int) and causal and "attention" in type(module).__name__.lower():
            found.setdefault(index, module)
    if not found:
        raise ModelError(
            f"{type(model).__name__} has no attention layers that Focus can find",
            expected="a decoder whose attention modules carry a layer_idx",
            fix=_OTHER_MODEL,
        )
    return dict(sorted(found.items()))


def hidden_size(model: nn.Module) -> int:
    """Width d of the hidden states that enter attention."""
    return int(model.config.get_text_config().hidden_size)  # type: ignore[operator, union-attr]


def _focus_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    layer: FocusLayer | None = module.__dict__.get(_STATE)
    if layer is None:
        raise ModelError(
            "Focus was composed onto another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    owner = layer.owner
    _refuse_unsupported(layer.index, key.shape[2], kwargs)
    start = time.perf_counter()
    if owner.measuring_full or layer.router is None:
        out = _full(module, query, key, value, attention_mask, scaling, softcap, kwargs)
    else:
        out = _sparse(layer, query, key, value, attention_mask, scaling, softcap).transpose(1, 2)
    owner.seconds.attention += time.perf_counter() - start
    owner.seconds.calls += 1
    return out, None


def _refuse_unsupported(index: int, length: int, kwargs: dict[str, Any]) -> None:
    """Arguments that change what attention means must not be dropped silently."""
    for name, what in (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias")):
        if kwargs.get(name) is not None:
            raise ModelError(f"layer {index} of this model uses {what}, which Focus does not support", fix=_OTHER_MODEL)
    sliding = kwargs.get("sliding_window")
    if sliding is not None and length > sliding:
        raise ModelError(
            f"layer {index} of this model attends to the last {sliding} tokens only, but the text has {length}",
            expected=f"at most {sliding} tokens",
            fix="use a shorter text or a model without sliding-window layers",
        )


def _full(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, scaling: float | None,
    softcap: float | None, kwargs: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Full causal attention, (B, T, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    shape = (key.shape[0], key.shape[2])
    if softcap is not None:
        everything = torch.ones(shape, dtype=torch.int64, device=key.device)
        out = focus_attention(
            query, key, value, everything, window=shape[1], scale=scaling, softcap=softcap, backend="masked",
            key_padding=None if padding is None else padding.bool(),
        )  # fmt: skip
        return out.transpose(1, 2)  # type: ignore[union-attr]
    if padding is None and query.shape[2] != shape[1]:  # SDPA aligns is_causal to the first key, not to the last
        padding = torch.ones(shape, dtype=torch.bool, device=key.device)
    mask = None if padding is None else _causal_mask(padding, query, key)
    dropout = {"dropout": kwargs["dropout"]} if "dropout" in kwargs else {}
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(module, query, key, value, mask, scaling=scaling, is_causal=mask is None, **dropout)[0]


def _causal_mask(padding: Tensor, query: Tensor, key: Tensor) -> Tensor:
    length_q, length_k = query.shape[2], key.shape[2]
    rows = torch.arange(length_k - length_q, length_k, device=query.device)
    causal = torch.arange(length_k, device=query.device)[None, :] <= rows[:, None]
    diagonal = torch.arange(length_k, device=query.device)[None, :] == rows[:, None]
    return ((causal & padding.bool()[:, None, :]) | diagonal)[:, None]  # the diagonal keeps padded rows finite


def _sparse(
    layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, scaling: float | None,
    softcap: float | None,
) -> Tensor:  # fmt: skip
    if query.shape[2] != key.shape[2]:
        raise InputError(
            "Focus was asked to continue from a key-value cache",
            expected="the whole text in one forward pass",
            fix="call the model with use_cache=False; generation with Focus is not available yet",
        )
    assert layer.assignment is not None, "the pre-hook runs before attention"
    owner, config = layer.owner, layer.owner.config
    if owner.soft_gate is not None:
        gate = owner.soft_gate
        return gated_attention(
            query, key, value, layer.assignment.probabilities,
            window=config.window, num_sinks=config.num_sinks, gate=gate.gate, steepness=gate.steepness,
            scale=scaling if scaling is not None else query.shape[-1] ** -0.5,
            hard_top_k=config.top_k if gate.hard else None, softcap=softcap,
        )  # fmt: skip
    return focus_attention(
        query, key, value, layer.assignment.membership,
        window=config.window, num_sinks=config.num_sinks,
        key_padding=None if padding is None else padding.bool(),
        scale=scaling, softcap=softcap, backend=owner.backend,
    )  # type: ignore[return-value]  # fmt: skip


AttentionInterface.register(IMPLEMENTATION, _focus_forward)
AttentionMaskInterface.register(IMPLEMENTATION, flash_attention_mask)


@dataclass(eq=False)
class FocusModel:
    """A model with Focus composed onto it; `detach()` gives the original back.

    Attributes:
        model: the frozen Hugging Face model.
        routers: routers by layer number, as `nn.ModuleDict`-free plain mapping so that the model stays untouched.
        config: settings in force.
        backend: backend given to `focus_attention`.
        seconds: time spent in routing and attention since `reset_seconds()`.
    """

    model: nn.Module
    routers: Mapping[int, CentroidRouter]
    config: FocusConfig
    backend: str = "auto"
    seconds: StageSeconds = field(default_factory=StageSeconds)
    measuring_full: bool = False
    paused: bool = False
    soft_gate: SoftGate | None = None
    _hooks: list[Any] = field(default_factory=list)
    _modules: dict[int, nn.Module] = field(default_factory=dict)
    _original: str = ""

    def assignments(self) -> dict[int, Assignment]:
        """What the last forward pass decided, by layer."""
        layers = (getattr(module, _STATE) for module in self._modules.values())
        return {layer.index: layer.assignment for layer in layers if layer.assignment is not None}

    def reset_seconds(self) -> None:
        """Start the stage clocks again."""
        self.seconds = StageSeconds()

    @contextmanager
    def full_attention(self) -> Iterator[nn.Module]:
        """The original model, exactly: its own attention implementation, no routing."""
        self._set_implementation(self._original)
        self.paused = True
        try:
            yield self.model
        finally:
            self.paused = False
            if self._modules:  # not detached in between
                self._set_implementation(IMPLEMENTATION)

    @contextmanager
    def measured_full_attention(self) -> Iterator[nn.Module]:
        """Full attention through torch's SDPA, with the attention calls timed in `seconds`."""
        self.measuring_full = True
        try:
            yield self.model
        finally:
            self.measuring_full = False

    @contextmanager
    def training_gate(self, gate: SoftGate) -> Iterator[nn.Module]:
        """Soft gates instead of the hard mask."""
        self.soft_gate = gate
        try:
            yield self.model
        finally:
            self.soft_gate = None

    def detach(self) -> nn.Module:
        """Take Focus off. The model's logits are then the untouched model's, bit for bit. Calling it twice is fine."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module in self._modules.values():
            module.__dict__.pop(_STATE, None)
        if self._modules:
            self._set_implementation(self._original)
        self._modules = {}
        return self.model

    def _set_implementation(self, name: str) -> None:
        self.model.set_attn_implementation(name)  # type: ignore[operator]

    def _attach(self) -> None:
        self._original = self.model.config._attn_implementation  # type: ignore[union-attr, assignment]
        self._modules = attention_modules(self.model)
        for module in self._modules.values():
            if _STATE in module.__dict__:
                self._modules = {}
                raise ModelError("this model already has Focus composed onto it", fix="call detach() first")
        for index, module in self._modules.items():
            module.__dict__[_STATE] = FocusLayer(index, self.routers.get(index), self)
            if index in self.routers:
                self._hooks.append(module.register_forward_pre_hook(_route, with_kwargs=True))
        self._set_implementation(IMPLEMENTATION)
        if self.model.config._attn_implementation != IMPLEMENTATION:  # type: ignore[union-attr]
            self.detach()
            raise ModelError(
                f"{type(self.model).__name__} does not use transformers' attention interface, so Focus cannot reach it",
                fix=_OTHER_MODEL,
            )


def _route(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    layer: FocusLayer = getattr(module, _STATE)
    if layer.owner.measuring_full or layer.owner.paused or layer.router is None:
        return
    start = time.perf_counter()
    hidden = args[0] if args else kwargs["hidden_states"]
    config = layer.owner.config
    layer.router.config = config
    layer.assignment = layer.router.assign(hidden, padding=_padding(kwargs), assignment=config.assignment)
    layer.owner.seconds.routing += time.perf_counter() - start


def _padding(kwargs: dict[str, Any]) -> Tensor | None:
    mask = kwargs.get("attention_mask")
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def compose(
    model: nn.Module,
    centroids: Any,
    *,
    top_k: int | None = None,
    window: int | None = None,
    num_sinks: int | None = None,
    assignment: str | None = None,
    backend: str = "auto",
) -> FocusModel:
    """Compose Focus onto a frozen model.

    Args:
        model: a Hugging Face causal language model.
        centroids: `Centroids` from `load_centroids` or `random_centroids`.
        top_k, window, num_sinks, assignment: inference settings; the centroid file's own when None.
        backend: attention backend, see `focus_attention`.

    Returns:
        A handle with `full_attention()` and `detach()`.

    Raises:
        ConfigError: a setting does not fit the centroids. ModelError: the model cannot take Focus.
        CentroidFileError: the centroids were made for another model.
    """
    centroids.check_fits(model)
    chosen = {"top_k": top_k, "window": window, "num_sinks": num_sinks, "assignment": assignment}
    config = centroids.config.replace(**{name: value for name, value in chosen.items() if value is not None})
    if config.assignment == "causal" and not centroids.has_potentials:
        raise InputError(
            "these centroids carry no column potentials, which causal assignment needs",
            fix="call calibrate_potentials(model, centroids, ids) first, or use assignment='sinkhorn'",
        )
    parameter = next(model.parameters())
    routers = {index: router.to(parameter.device) for index, router in centroids.routers.items()}
    focus = FocusModel(model, routers, config, backend)
    focus._attach()
    return focus
