"""Run a model's attention layers with another method, through transformers' attention interface.

The model's weights and code are never changed. Layers with a sliding window keep their own attention where others are
global; where every layer has one, the method runs inside it and refuses texts that are longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.attention.masked import sliding_attention
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.state import STATE as FOCUS_STATE
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.structure import OTHER_MODEL, attention_modules, sliding_window_of
from paper.methods.checks import check_text
from paper.methods.handle import Handle
from paper.methods.pairs import Reading

IMPLEMENTATION = "focus_baseline"
STATE = "_baseline_layer"


class AttentionBaseline:
    """A method that replaces attention: its settings, and what one layer does.

    Attributes:
        name: in the registry.
        takes_softcap: whether the method means anything when scores are capped.
        full_layers: layers that keep their own attention.
    """

    name: ClassVar[str]
    takes_softcap: ClassVar[bool] = True
    full_layers: tuple[int, ...] = ()

    def attach(self, model: Any, *, text: Tensor | None = None) -> AttentionHandle:
        """Replace the attention of a model; see `Baseline.attach`. Attention dropout is not applied."""
        return AttentionHandle(model, self, text)

    def start(self, index: int, query: Tensor, key: Tensor) -> Any:
        """What a layer keeps between passes, made at its first one.

        Args:
            index: of the layer.
            query: (B, Hq, T, D) of that pass.
            key: (B, Hkv, T, D).
        """
        return None

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        state: Any,
        scale: float,
        softcap: float | None,
        reading: Reading,
    ) -> Tensor:
        """One layer's attention.

        Args:
            query: (B, Hq, T, D).
            key: (B, Hkv, T, D), Hq a multiple of Hkv.
            value: (B, Hkv, T, D).
            state: from `start`.
            scale: factor on the scores.
            softcap: scores become softcap * tanh(scores / softcap); None for no cap.
            reading: counts the pairs read.

        Returns:
            (B, Hq, T, D).
        """
        raise NotImplementedError

    def observe(self, state: Any, query: Tensor, key: Tensor) -> None:
        """Learn from one forward pass; called without gradients, before `attend`, while the handle trains.

        Args:
            state: from `start`; changed in place.
            query: (B, Hq, T, D).
            key: (B, Hkv, T, D).
        """

    def settle(self, state: Any) -> None:
        """Take over what was observed since the last call."""


@dataclass(slots=True, eq=False)
class BaselineLayer:
    """What one attention module holds.

    Attributes:
        index: layer number.
        own: whether the layer keeps its own attention.
        sliding: the layer's own window in tokens, None for a global layer.
        state: what the method keeps for this layer.
        reading: pairs read by the latest pass; None before one, and where the layer keeps its own attention.
        called: whether the running pass has reached the attention interface.
    """

    index: int
    owner: AttentionHandle
    own: bool
    sliding: int | None
    state: Any = None
    reading: Reading | None = None
    called: bool = False


class AttentionHandle(Handle):
    """A model whose attention is replaced. One forward pass at a time, without padding or key-value cache."""

    def __init__(self, model: Any, method: AttentionBaseline, text: Tensor | None = None) -> None:
        self.model, self.method, self._learning = model, method, False
        self._modules: dict[int, nn.Module] = {}
        self._hooks: list[Any] = []
        self._original: str = ""
        self._attach()
        if text is not None:
            try:
                self._learn(check_text(model, text))
            except BaseException:
                self.detach()
                raise

    def retained_pairs(self) -> float:
        readings = self._readings()
        return sum(reading.retained_pairs for reading in readings) / len(readings)

    def keys_per_query(self) -> float:
        """Mean number of keys a query of the last forward pass read exactly, mean over the layers of the method.

        Raises:
            InputError: no forward pass has run.
        """
        readings = self._readings()
        return sum(reading.keys_per_query for reading in readings) / len(readings)

    def train(self, mode: bool = True) -> None:
        self._learning = mode

    def after_step(self) -> None:
        for layer in self.layers():
            if layer.state is not None:
                self.method.settle(layer.state)

    def layers(self) -> list[BaselineLayer]:
        """What every attention module holds, in order; empty once detached."""
        return [getattr(module, STATE) for module in self._modules.values()]

    @property
    def learning(self) -> bool:
        """Whether forward passes teach the method."""
        return self._learning

    def detach(self) -> Any:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module in self._modules.values():
            module.__dict__.pop(STATE, None)
        if self._modules:
            self.model.set_attn_implementation(self._original)
        self._modules = {}
        return self.model

    def _readings(self) -> list[Reading]:
        readings = [layer.reading or Reading() for layer in self.layers() if not layer.own]
        if not readings:
            raise InputError("this baseline is detached", fix="ask before calling detach()")
        return readings

    def _attach(self) -> None:
        model = self.model
        if isinstance(model, FocusModel | Handle):
            raise ModelError("this is a handle, not a model", fix="call its detach(), then use what that returns")
        modules = attention_modules(model)
        if any(FOCUS_STATE in module.__dict__ or STATE in module.__dict__ for module in modules.values()):
            raise ModelError(
                "another method already replaces this model's attention", fix="call detach() on its handle first"
            )
        sliding = {index: sliding_window_of(module) for index, module in modules.items()}
        own = _own_layers(self.method, sliding)
        self._original = model.config._attn_implementation
        self._modules = modules
        for index, module in modules.items():
            module.__dict__[STATE] = BaselineLayer(index, self, index in own, sliding[index])
            self._hooks.append(module.register_forward_pre_hook(_before))
            self._hooks.append(module.register_forward_hook(_after))
        model.set_attn_implementation(IMPLEMENTATION)
        if model.config._attn_implementation != IMPLEMENTATION:
            self.detach()
            raise ModelError(
                f"{type(model).__name__} does not use transformers' attention interface, so {self.method.name} cannot "
                "reach it",
                fix=OTHER_MODEL,
            )

    @torch.no_grad()
    def _learn(self, text: Tensor) -> None:
        self.train()
        try:
            for ids in text.split(1):
                final_hidden(self.model, ids)
                self.after_step()
        finally:
            self.train(False)


def _own_layers(method: AttentionBaseline, sliding: dict[int, int | None]) -> set[int]:
    unknown = sorted(set(method.full_layers) - set(sliding))
    if unknown:
        raise ConfigError(f"full_layers names layer {unknown[0]}", expected=f"layers from 0 to {max(sliding)}")
    windowed = {index for index, window in sliding.items() if window is not None}
    own = set(method.full_layers) | (windowed if len(windowed) < len(sliding) else set())
    if own == set(sliding):
        raise ConfigError(f"every layer keeps its own attention, so {method.name} would run nowhere")
    return own


def _before(module: nn.Module, args: tuple[Any, ...]) -> None:
    getattr(module, STATE).called = False


def _after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Check that the module called `baseline_forward` and did not run its own attention."""
    layer: BaselineLayer = getattr(module, STATE)
    if not layer.called:
        raise ModelError(
            f"{type(module).__name__} ran layer {layer.index} without calling transformers' attention interface, so "
            f"{layer.owner.method.name} cannot reach it",
            fix=OTHER_MODEL,
        )


def baseline_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers.

    Args:
        module: an attention module that `AttentionHandle` prepared.
        query: (B, Hq, T, D).
        key: (B, Hkv, T, D).
        value: (B, Hkv, T, D).
        attention_mask: None, as sequences are not padded.
        scaling: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.
        **kwargs: what else the model passes; refused where it changes attention.

    Returns:
        (B, T, Hq, D), and no weights.

    Raises:
        ModelError: the model computes what the method cannot follow. InputError: the text is padded or cached.
    """
    layer: BaselineLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            "a baseline was attached to another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    layer.called = True
    method = layer.owner.method
    _refuse_unsupported(layer, query, key, value, attention_mask, softcap, kwargs)
    query, key, value = one_dtype(*rows_together(query, key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if layer.own:
        reach = layer.sliding or key.shape[2]
        out = sliding_attention(query, key, value, reach, Scoring(scale, softcap))
        return out.transpose(1, 2), None
    with torch.no_grad():
        if layer.state is None:
            layer.state = method.start(layer.index, query, key)
        if layer.owner.learning:
            method.observe(layer.state, query, key)
    layer.reading = Reading()
    out = method.attend(query, key, value, state=layer.state, scale=scale, softcap=softcap, reading=layer.reading)
    return out.transpose(1, 2), None


def _refuse_unsupported(
    layer: BaselineLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    softcap: float | None,
    kwargs: dict[str, Any],
) -> None:
    """Refuse arguments that a baseline does not apply."""
    name, where = layer.owner.method.name, f"layer {layer.index} of this model"
    for argument, what in (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias")):
        if kwargs.get(argument) is not None:
            raise ModelError(f"{where} uses {what}, which {name} does not support", fix=OTHER_MODEL)
    if key.shape != value.shape or query.shape[3] != key.shape[3]:
        raise ModelError(
            f"{where} has queries of size {query.shape[3]}, keys of {key.shape[3]} and values of {value.shape[3]}",
            expected="one head size",
            fix=OTHER_MODEL,
        )
    if softcap is not None and not (layer.own or layer.owner.method.takes_softcap):
        raise ModelError(f"{where} caps its scores, which {name} cannot estimate", fix="use a model without softcap")
    if query.shape[2] != key.shape[2]:
        raise InputError(
            f"{where} got {query.shape[2]} queries for {key.shape[2]} keys",
            expected="the whole text in one forward pass: baselines cannot continue from a key-value cache",
            fix="pass use_cache=False",
        )
    if mask is not None:
        raise InputError(
            "the batch is padded", expected="sequences of one length", fix="run texts of different lengths one by one"
        )
    if not layer.own and layer.sliding is not None and key.shape[2] > layer.sliding:
        raise ModelError(
            f"{where} attends to the last {layer.sliding} tokens only, but the text has {key.shape[2]}",
            expected=f"at most {layer.sliding} tokens, so that {name} alone decides what is read",
            fix="use shorter texts",
        )


AttentionInterface.register(IMPLEMENTATION, baseline_forward)
AttentionMaskInterface.register(IMPLEMENTATION, flash_attention_mask)
