"""Listen to routers and attention modules of a composed model, or replace what routers decide, for one `with` block.

Every function here is a context manager that is undone when its block ends, also by an exception. Blocks nest. Several
threads may run the model and open blocks at once; a block listens to the passes of all of them.

    with observe_routing(focus, on_embedding=lambda layer, vectors: print(layer, vectors.shape)):
        model(ids)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.call import Call
from focus_runtime.composition.modes import FullAttention, Observed, OnAttention
from focus_runtime.composition.state import STATE, FocusLayer, FoundSinks
from focus_runtime.models.structure import attention_modules, decoder_layers
from focus_runtime.routing.router import Assignment, CentroidRouter, RouterObserver

OnTensor = Callable[[int, Tensor], object]  # the result is ignored
Assign = Callable[[int, CentroidRouter, Tensor, Tensor | None], Assignment]
OnFocus = Callable[[FocusLayer, Call, Tensor], object]


class HasRouters(Protocol):
    """What holds routers by layer number: `FocusModel` and `Centroids`."""

    @property
    def routers(self) -> Mapping[int, CentroidRouter]:
        """Routers by layer number."""


@contextmanager
def observe_routing(
    holder: HasRouters,
    *,
    on_embedding: OnTensor | None = None,
    on_logits: OnTensor | None = None,
    stop_gradient: bool = False,
) -> Iterator[None]:
    """Call functions with what every router computes, in the order of the layers.

    Args:
        holder: the composition or the centroids whose routers are observed.
        on_embedding: called with the layer number and the routing vectors (B, T, R), attached to the autograd graph.
        on_logits: called with the layer number and the scores over temperature (B, T, K).
        stop_gradient: routers pass no gradient back to their hidden states.
    """

    def observer(index: int) -> RouterObserver:
        return RouterObserver(
            on_embedding=None if on_embedding is None else lambda vectors_BTR: on_embedding(index, vectors_BTR),
            on_logits=None if on_logits is None else lambda logits_BTK: on_logits(index, logits_BTK),
            stop_gradient=stop_gradient,
        )

    with _attached(holder, observer):
        yield


@contextmanager
def replace_assignment(holder: HasRouters, assign: Assign) -> Iterator[None]:
    """Let a function decide every router's groups; of nested blocks the innermost decides.

    Args:
        holder: the composition or the centroids whose assignment is replaced.
        assign: called with the layer number, its router, the hidden states (B, T, E) and the padding (B, T) or None;
            `router.own_assignment` gives what the router itself would have decided.
    """

    def observer(index: int) -> RouterObserver:
        router = holder.routers[index]
        return RouterObserver(assign=lambda hidden_BTE, padding_BT: assign(index, router, hidden_BTE, padding_BT))

    with _attached(holder, observer):
        yield


@contextmanager
def _attached(holder: HasRouters, make: Callable[[int], RouterObserver]) -> Iterator[None]:
    added: list[tuple[CentroidRouter, RouterObserver]] = []
    try:
        for index, router in holder.routers.items():
            added.append((router, make(index)))
            router.observers.append(added[-1][1])
        yield
    finally:
        for router, observer in added:
            router.observers.remove(observer)


@contextmanager
def observe_hidden_states(model: nn.Module, layers: Collection[int], on_hidden: OnTensor) -> Iterator[None]:
    """Call a function with the layer and the hidden states (B, T, E) that enter some attention modules, whatever
    attention they run."""

    def hook(index: int) -> Any:
        def call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            on_hidden(index, args[0] if args else kwargs["hidden_states"])

        return call

    hooks = []
    try:
        for index, module in attention_modules(model).items():
            if index in layers:
                hooks.append(module.register_forward_pre_hook(hook(index), with_kwargs=True))
        yield
    finally:
        for handle in hooks:
            handle.remove()


@contextmanager
def observe_attention(focus: FocusModel, on_attention: OnAttention) -> Iterator[None]:
    """Run full attention and call a function with every layer's queries and keys.

    Args:
        on_attention: called with the layer, the queries (B, Hq, T, D) and keys (B, Hkv, T, D) after norms and rotary
            embedding, the scale and the softcap.
    """
    with focus.entered(FullAttention(on_attention)):
        yield


@contextmanager
def observe_focus(focus: FocusModel, on_focus: OnFocus) -> Iterator[None]:
    """Call a function with what every Focus call took and returned.

    Args:
        on_focus: called with the layer, the call (query, key and value after norms and rotary embedding, scale,
            softcap) and what it returned, (B, T, Hq, D), attached to the autograd graph.
    """
    with focus.entered(Observed(on_focus)):
        yield


@dataclass(slots=True)
class RecordedPass:
    """What the layers of one pass leave for a later one: what each returned, and the text sinks found up to there, (B,
    T) bool."""

    outputs: dict[int, Any] = field(default_factory=dict)
    sinks: dict[int, Tensor] = field(default_factory=dict)


@contextmanager
def recorded_outputs(model: nn.Module) -> Iterator[RecordedPass]:
    """Keep what every decoder layer returns; a later pass in the block replaces an earlier one. No cache may hold
    tokens."""
    recorded, found = RecordedPass(), _found_sinks(model)

    def keep(index: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            recorded.outputs[index] = _detached(output)
            if found is not None and index in found.by_layer:
                recorded.sinks[index] = found.by_layer[index]

        return hook

    hooks = [block.register_forward_hook(keep(index)) for index, block in decoder_layers(model).items()]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def resumed_at(model: nn.Module, layer: int, recorded: RecordedPass, first_token: int = 0) -> Iterator[None]:
    """While the block runs, layers before `layer` compute nothing and return what a recorded pass returned.

    The passes must read the same tokens as the recorded one, from `first_token` on, continuing a cache of those before
    it. Composed layers that are left out keep the state of their latest pass.
    """
    found = _found_sinks(model)
    if found is not None:
        found.by_layer |= {index: sinks[:, first_token:] for index, sinks in recorded.sinks.items() if index < layer}
    with ExitStack() as stack:
        before = [(index, block) for index, block in decoder_layers(model).items() if index < layer]
        for _, block in before:
            # only the last one's output is read; the others' stands in for what need not be computed
            stack.enter_context(_returning(block, _from(recorded.outputs[before[-1][0]], first_token)))
        yield


def _found_sinks(model: nn.Module) -> FoundSinks | None:
    """Of the composition on the model, if there is one."""
    states = (module.__dict__.get(STATE) for module in attention_modules(model).values())
    return next((state.owner.found_sinks for state in states if state is not None), None)


@contextmanager
def _returning(block: nn.Module, output: Any) -> Iterator[None]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return output

    block.__dict__["forward"] = forward
    try:
        yield
    finally:
        del block.__dict__["forward"]


def _detached(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.detach()
    return tuple(part.detach() if isinstance(part, torch.Tensor) else part for part in output)


def _from(output: Any, start: int) -> Any:
    """What a block returned for the tokens from `start` on."""
    if isinstance(output, tuple):
        return (output[0][:, start:], *output[1:])
    return output[:, start:]
