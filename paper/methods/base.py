"""What every method that Focus is compared with shares: it is put on a model, runs or trains there, and comes off.

A method is a frozen dataclass of its settings that overrides one function: `attend`, to replace the attention of a
model through transformers' attention interface, or `adapt`, to let some of its weights change. The rest is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.state import STATE as FOCUS_STATE
from focus_runtime.errors import InputError, ModelError
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import OTHER_MODEL, attention_modules, sliding_window_of

IMPLEMENTATION = "focus_baseline"
STATE = "_baseline_layer"
BLOCK = 256  # queries at a time: memory grows with BLOCK x T, and little of the future is computed


@dataclass(slots=True, eq=False)
class Call:
    """One layer's attention, and how many query-key pairs it read.

    Attributes:
        query: (B, Hq, T, D).
        key, value: (B, Hkv, T, D), Hq a multiple of Hkv.
        softcap: scores become softcap * tanh(scores / softcap); None: no cap.
        state: what the method keeps for this layer, from `Method.start`.
        pairs: pairs whose key and value were read exactly, over batch and query heads.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    softcap: float | None = None
    state: Any = None
    pairs: Tensor | float = 0.0

    def blocks(self) -> Iterator[slice]:
        """Blocks of queries."""
        length = self.query.shape[2]
        for start in range(0, length, BLOCK):
            yield slice(start, min(start + BLOCK, length))

    def distance(self, rows: slice, keys: Tensor | None = None) -> Tensor:
        """(rows, keys) i - j of a block's queries i and keys j: the given positions, or all up to the block's end."""
        device = self.query.device
        keys = torch.arange(rows.stop, device=device) if keys is None else keys
        return torch.arange(rows.start, rows.stop, device=device)[:, None] - keys

    def grouped_query(self) -> Tensor:
        """Queries by the key-value head they share: (B, Hkv, G, T, D)."""
        return self.query.unflatten(1, (self.key.shape[1], -1))

    def capped(self, scores: Tensor) -> Tensor:
        """The scores under the model's softcap."""
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def count(self, read: Tensor) -> None:
        """Count the pairs of a block, a bool tensor that broadcasts to (B, Hq, rows, keys)."""
        batch, heads = self.query.shape[:2]
        self.pairs = self.pairs + read.sum() * (batch * heads // read.shape[:-2].numel())

    def count_all(self) -> None:
        """Count every causal pair."""
        self.pairs = self.pairs + self._causal_pairs()

    @property
    def retained_pairs(self) -> Tensor | float:
        """Pairs read over causal pairs."""
        return self.pairs / self._causal_pairs()

    def _causal_pairs(self) -> float:
        batch, heads, length, _ = self.query.shape
        return batch * heads * length * (length + 1) / 2

    def over_pairs(self, rows: slice, pairs: Tensor, keys: Tensor | None = None) -> Tensor:
        """Softmax attention of a block over chosen pairs, which are counted.

        Args:
            pairs: broadcasts to (B, Hq, rows, keys); bool, or float: added to the scores, -inf where not allowed.
                Every query needs a key.
            keys: positions of the keys; all up to the block's end when None.

        Returns:
            (B, Hq, rows, D).
        """
        query = self.query[:, :, rows]
        key, value = self.key[:, :, : rows.stop], self.value[:, :, : rows.stop]
        if keys is not None:
            key, value = key.index_select(2, keys), value.index_select(2, keys)
        self.count(pairs if pairs.dtype == torch.bool else pairs > float("-inf"))
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        if self.softcap is None:
            mask = pairs if pairs.dtype == torch.bool else pairs.to(query.dtype)
            return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scale)
        scores = self.capped(query @ key.transpose(-1, -2) * self.scale)
        scores = scores.masked_fill(~pairs, float("-inf")) if pairs.dtype == torch.bool else scores + pairs
        return torch.softmax(scores.float() if scores.dtype.itemsize < 4 else scores, dim=-1).to(value.dtype) @ value


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A method's settings; a subclass overrides `attend` or `adapt`."""

    def attend(self, call: Call) -> Tensor:
        """One layer's attention, (B, Hq, T, D)."""
        raise NotImplementedError

    def adapt(self, model: nn.Module) -> tuple[list[nn.Parameter], Callable[[], None]]:
        """Let weights of the model change: the parameters to train, and what puts the original back, bit for bit."""
        return [], lambda: None

    def start(self, index: int, query: Tensor, key: Tensor) -> Any:
        """What layer `index` keeps between passes, made at its first one from (B, H, T, D) queries and keys."""
        return None

    def observe(self, call: Call) -> None:
        """Learn from one pass into `call.state`; called without gradients before `attend`, while the handle trains."""

    def settle(self, state: Any) -> None:
        """Take over what was observed since the last call."""

    def attach(self, model: Any, *, text: Tensor | None = None) -> Handle:
        """Put the method onto a Hugging Face causal language model. Attention dropout is not applied.

        Args:
            text: (N, T) token ids for what a method estimates without gradients.
        """
        return Handle(model, self, text)


@dataclass(slots=True, eq=False)
class Layer:
    """What one attention module holds.

    Attributes:
        sliding: the layer's own window in tokens, None for a global layer.
        retained_pairs: share of the causal pairs that the latest pass read; None before one.
        called: whether the running pass has reached the attention interface.
    """

    index: int
    handle: Handle
    own: bool
    sliding: int | None
    state: Any = None
    retained_pairs: Tensor | float | None = None
    called: bool = False


@dataclass(eq=False)
class Handle:
    """A model with a method on it; `detach()` gives the original back, bit for bit, and so does leaving a `with`.

    One forward pass at a time, without padding or key-value cache. Layers with a sliding window keep their own
    attention where others are global; where every layer has one, longer texts are refused.
    """

    model: Any
    method: Method
    text: Tensor | None = None
    learning: bool = field(default=False, init=False)
    _modules: dict[int, nn.Module] = field(default_factory=dict, init=False)
    _hooks: list[Any] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.model, FocusModel | Handle):
            raise ModelError("this is a handle, not a model", fix="call its detach(), then use what that returns")
        self._original = self.model.config._attn_implementation
        if type(self.method).attend is not Method.attend:
            self._replace_attention()
        self._adapted, self._undo = self.method.adapt(self.model)
        if self.text is not None and self._modules:
            try:
                self._learn(self.text.to(input_device(self.model)))
            except BaseException:
                self.detach()
                raise

    def parameters(self) -> list[nn.Parameter]:
        """What an optimiser may change."""
        return [*self._adapted, *(one.state for one in self.layers() if isinstance(one.state, nn.Parameter))]

    def retained_pairs(self) -> float:
        """Share of the causal pairs that the last forward pass read exactly, mean over the layers of the method."""
        layers = [layer for layer in self.layers() if not layer.own]
        shares = [float(layer.retained_pairs) for layer in layers if layer.retained_pairs is not None]
        if layers and not shares:
            raise InputError("no forward pass has run yet", fix="score or run a text first, then ask what was read")
        return sum(shares) / len(shares) if shares else 1.0

    def train(self, mode: bool = True) -> None:
        """Whether forward passes update what the method learns without gradients; `model.training` stays as it is."""
        self.learning = mode

    def after_step(self) -> None:
        """Apply the updates observed since the last call; call it after every optimiser step."""
        for layer in self.layers():
            if layer.state is not None:
                self.method.settle(layer.state)

    def layers(self) -> list[Layer]:
        """What every attention module holds, in order; empty once detached."""
        return [getattr(module, STATE) for module in self._modules.values()]

    def detach(self) -> Any:
        """Take the method off and return the model. Calling it twice is fine."""
        for hook in self._hooks:
            hook.remove()
        for module in self._modules.values():
            module.__dict__.pop(STATE, None)
        if self._modules:
            self.model.set_attn_implementation(self._original)
        self._undo()
        self._hooks, self._modules, self._adapted, self._undo = [], {}, [], lambda: None
        return self.model

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _replace_attention(self) -> None:
        model, self._undo = self.model, lambda: None
        modules = attention_modules(model)
        if any(FOCUS_STATE in module.__dict__ or STATE in module.__dict__ for module in modules.values()):
            raise ModelError(
                "another method already replaces this model's attention", fix="call detach() on its handle first"
            )
        sliding = {index: sliding_window_of(module) for index, module in modules.items()}
        mixed = None in sliding.values()
        self._modules = modules
        for index, module in modules.items():
            module.__dict__[STATE] = Layer(index, self, mixed and sliding[index] is not None, sliding[index])
            self._hooks.append(module.register_forward_pre_hook(_before))
            self._hooks.append(module.register_forward_hook(_after))
        model.set_attn_implementation(IMPLEMENTATION)
        if model.config._attn_implementation != IMPLEMENTATION:
            self.detach()
            raise ModelError(
                f"{type(model).__name__} does not use transformers' attention interface, so {_name(self)} cannot reach "
                "it",
                fix=OTHER_MODEL,
            )

    @torch.no_grad()
    def _learn(self, text: Tensor) -> None:
        self.train()
        for ids in text.split(1):
            final_hidden(self.model, ids)
            self.after_step()
        self.train(False)


def _name(handle: Handle) -> str:
    return type(handle.method).__name__


def _before(module: nn.Module, args: tuple[Any, ...]) -> None:
    getattr(module, STATE).called = False


def _after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Check that the module called `method_forward` and did not run its own attention."""
    layer: Layer = getattr(module, STATE)
    if not layer.called:
        raise ModelError(
            f"{type(module).__name__} ran layer {layer.index} without calling transformers' attention interface, so "
            f"{_name(layer.handle)} cannot reach it",
            fix=OTHER_MODEL,
        )


def method_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers: (B, T, Hq, D), and no weights."""
    layer: Layer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            "a method was attached to another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    layer.called = True
    method = layer.handle.method
    _refuse_unsupported(layer, query, key, value, attention_mask, kwargs)
    query, key, value = one_dtype(*rows_together(query, key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    call = Call(query, key, value, scale, softcap)
    if layer.own:
        assert layer.sliding is not None
        distances = ((rows, call.distance(rows)) for rows in call.blocks())
        outs = [call.over_pairs(rows, (d >= 0) & (d < layer.sliding)) for rows, d in distances]
        return torch.cat(outs, dim=2).transpose(1, 2), None
    with torch.no_grad():
        if layer.state is None:
            layer.state = method.start(layer.index, query, key)
        call.state = layer.state
        if layer.handle.learning:
            method.observe(call)
    out = method.attend(call)
    layer.retained_pairs = call.retained_pairs
    return out.transpose(1, 2), None


def _refuse_unsupported(
    layer: Layer, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> None:
    name, where = _name(layer.handle), f"layer {layer.index} of this model"
    for argument, what in (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias")):
        if kwargs.get(argument) is not None:
            raise ModelError(f"{where} uses {what}, which {name} does not support", fix=OTHER_MODEL)
    if key.shape != value.shape or query.shape[3] != key.shape[3]:
        raise ModelError(f"{where} has queries, keys and values of different sizes", fix=OTHER_MODEL)
    if query.shape[2] != key.shape[2]:
        raise InputError(
            f"{where} got {query.shape[2]} queries for {key.shape[2]} keys",
            expected="the whole text in one forward pass: methods cannot continue from a key-value cache",
            fix="pass use_cache=False",
        )
    if mask is not None:
        raise InputError("the batch is padded", expected="sequences of one length", fix="run the texts one by one")
    if not layer.own and layer.sliding is not None and key.shape[2] > layer.sliding:
        raise ModelError(
            f"{where} attends to the last {layer.sliding} tokens only, but the text has {key.shape[2]}",
            expected=f"at most {layer.sliding} tokens, so that {name} alone decides what is read",
            fix="use shorter texts",
        )


AttentionInterface.register(IMPLEMENTATION, method_forward)
AttentionMaskInterface.register(IMPLEMENTATION, flash_attention_mask)
