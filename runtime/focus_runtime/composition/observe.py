"""Listen to routers and attention modules of a composed model, or replace what routers decide, for one `with` block.

Blocks nest. Several threads may run the model and open blocks at once; a block listens to the passes of all of them.

    with observe_routing(focus, on_embedding=lambda layer, vectors: print(layer, vectors.shape)):
        model(ids)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.modes import FullAttention, Observed, OnAttention
from focus_runtime.composition.state import STATE, Call, FocusLayer, FoundSinks
from focus_runtime.models.structure import attention_modules, decoder_layers, hooked
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.router import Assignment, CentroidRouter, RouterObserver

OnTensor = Callable[[int, Tensor], object]  # the result is ignored
Assign = Callable[[int, CentroidRouter, Tensor, Tensor | None], Assignment]
OnFocus = Callable[[FocusLayer, Call, Tensor], object]


def observe_routing(
    holder: FocusModel | Centroids,
    *,
    on_embedding: OnTensor | None = None,
    on_logits: OnTensor | None = None,
    stop_gradient: bool = False,
) -> AbstractContextManager[None]:
    """Call functions with the layer and what its router computes, in the order of the layers; see `RouterObserver`."""

    def observer(index: int) -> RouterObserver:
        return RouterObserver(
            on_embedding=on_embedding and partial(on_embedding, index),
            on_logits=on_logits and partial(on_logits, index),
            stop_gradient=stop_gradient,
        )

    return _observed(holder.routers, observer)


def replace_assignment(holder: FocusModel | Centroids, assign: Assign) -> AbstractContextManager[None]:
    """Let a function decide every router's groups; of nested blocks the innermost decides.

    `assign` takes the layer, its router, the hidden states (B, T, E) and the padding (B, T) or None;
    `router.own_assignment` gives what the router itself would have decided.
    """
    return _observed(holder.routers, lambda index: RouterObserver(assign=partial(assign, index, holder.routers[index])))


@contextmanager
def _observed(routers: Mapping[int, CentroidRouter], make: Callable[[int], RouterObserver]) -> Iterator[None]:
    added = [(router, make(index)) for index, router in routers.items()]
    for router, observer in added:
        router.observers.append(observer)
    try:
        yield
    finally:
        for router, observer in added:
            router.observers.remove(observer)


def observe_hidden_states(
    model: nn.Module, layers: Collection[int], on_hidden: OnTensor
) -> AbstractContextManager[None]:
    """Call a function with the layer and the hidden states (B, T, E) that enter some attention modules."""

    def hook(index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        on_hidden(index, args[0] if args else kwargs["hidden_states"])

    modules = {index: module for index, module in attention_modules(model).items() if index in layers}
    return hooked(own.register_forward_pre_hook(partial(hook, i), with_kwargs=True) for i, own in modules.items())


def observe_attention(focus: FocusModel, on_attention: OnAttention) -> AbstractContextManager[Any]:
    """Run full attention and call a function with every layer, its queries (B, Hq, T, D) and keys (B, Hkv, T, D) after
    norms and rotary embedding, the scale and the softcap."""
    return focus.entered(FullAttention(on_attention))


def observe_focus(focus: FocusModel, on_focus: OnFocus) -> AbstractContextManager[Any]:
    """Call a function with every Focus call's layer, the call and what it returned, (B, T, Hq, D), with its graph."""
    return focus.entered(Observed(on_focus))


@dataclass(slots=True)
class RecordedPass:
    """What each layer of one pass returned, and the text sinks found up to there, (B, T) bool."""

    outputs: dict[int, Any] = field(default_factory=dict)
    sinks: dict[int, Tensor] = field(default_factory=dict)


@contextmanager
def recorded_outputs(model: nn.Module) -> Iterator[RecordedPass]:
    """Keep what every decoder layer returns in the latest pass of the block, without a cache that holds tokens."""
    recorded, found = RecordedPass(), _found_sinks(model)

    def keep(index: int, module: nn.Module, args: Any, output: Any) -> None:
        parts = output if isinstance(output, tuple) else (output,)
        detached = tuple(part.detach() if isinstance(part, Tensor) else part for part in parts)
        recorded.outputs[index] = detached if isinstance(output, tuple) else detached[0]
        if found is not None and index in found.by_layer:
            recorded.sinks[index] = found.by_layer[index]

    with hooked(block.register_forward_hook(partial(keep, index)) for index, block in decoder_layers(model).items()):
        yield recorded


@contextmanager
def resumed_at(model: nn.Module, layer: int, recorded: RecordedPass, first_token: int = 0) -> Iterator[None]:
    """While the block runs, layers before `layer` compute nothing and return what a recorded pass returned.

    The passes must read the same tokens as the recorded one, from `first_token` on, continuing a cache of those before
    it. Composed layers that are left out keep the state of their latest pass.
    """
    found = _found_sinks(model)
    if found is not None:
        found.by_layer |= {index: sinks[:, first_token:] for index, sinks in recorded.sinks.items() if index < layer}
    before = {index: block for index, block in decoder_layers(model).items() if index < layer}
    # only the last one's output is read; the others may return anything
    output = recorded.outputs[max(before)] if before else ()
    if isinstance(output, tuple):
        output = tuple(part[:, first_token:] if place == 0 else part for place, part in enumerate(output))
    else:
        output = output[:, first_token:]
    with ExitStack() as stack:
        for block in before.values():
            block.__dict__["forward"] = lambda *args, **kwargs: output
            stack.callback(block.__dict__.pop, "forward")
        yield


def _found_sinks(model: nn.Module) -> FoundSinks | None:
    """Of the composition on the model, if there is one."""
    states = (module.__dict__.get(STATE) for module in attention_modules(model).values())
    return next((state.owner.found_sinks for state in states if state is not None), None)
