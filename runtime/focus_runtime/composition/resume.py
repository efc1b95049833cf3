"""Run a model from one of its layers on: what the layers before it returned is taken from an earlier pass.

A change in one layer leaves everything before it as it was, so on average half a pass tells what the change does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from focus_runtime.models.structure import decoder_layers


@contextmanager
def recorded_outputs(model: nn.Module) -> Iterator[dict[int, Any]]:
    """Keep what every decoder layer returns, by layer number; a later pass in the block replaces an earlier one.

    Args:
        model: composed or not; run it without a key-value cache.
    """
    outputs: dict[int, Any] = {}

    def keep(index: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            outputs[index] = _detached(output)

        return hook

    hooks = [block.register_forward_hook(keep(index)) for index, block in decoder_layers(model).items()]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def resumed_at(model: nn.Module, layer: int, outputs: Mapping[int, Any]) -> Iterator[None]:
    """While the block runs, layers before `layer` compute nothing and return what a recorded pass returned.

    The passes must read the same tokens as the recorded one. Composed layers that are left out keep the state of
    their latest pass.

    Args:
        model: as in `recorded_outputs`.
        layer: the first layer that computes.
        outputs: of a recorded pass.
    """
    with ExitStack() as stack:
        before = [(index, block) for index, block in decoder_layers(model).items() if index < layer]
        for _, block in before:
            # only the last one's output is read; the others' stands in for what need not be computed
            stack.enter_context(_returning(block, outputs[before[-1][0]]))
        yield


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
