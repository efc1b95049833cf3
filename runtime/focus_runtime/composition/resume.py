"""Run a model from one of its layers on: what the layers before it returned is taken from an earlier pass.

A change in one layer leaves everything before it as it was, so on average half a pass tells what the change does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.composition.state import STATE
from focus_runtime.composition.text_sinks import FoundSinks
from focus_runtime.models.structure import attention_modules, decoder_layers


@dataclass(slots=True)
class RecordedPass:
    """What the layers of one pass leave for a later one.

    Attributes:
        outputs: what every decoder layer returned, by layer number.
        sinks: (B, T) bool by layer, the text sinks found up to there; empty where nothing looked for any.
    """

    outputs: dict[int, Any] = field(default_factory=dict)
    sinks: dict[int, Tensor] = field(default_factory=dict)


@contextmanager
def recorded_outputs(model: nn.Module) -> Iterator[RecordedPass]:
    """Keep what every decoder layer returns; a later pass in the block replaces an earlier one.

    Args:
        model: composed or not; run it without a key-value cache that holds tokens.
    """
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

    The passes must read the same tokens as the recorded one. Composed layers that are left out keep the state of
    their latest pass.

    Args:
        model: as in `recorded_outputs`.
        layer: the first layer that computes.
        recorded: an earlier pass.
        first_token: the passes read the tokens from this one on, continuing a cache of those before it.
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
