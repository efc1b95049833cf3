"""Run a text again from the first layer and the first token that a change touches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.device_map import input_device
from focus_runtime.models.structure import attention_modules, decoder_layers, sliding_window_of


class Replay:
    """One text under Focus with the hidden states after every layer kept, and its keys and values where they can be.

    Memory: T · d numbers a layer, and the cache of the text. A token's hidden states depend on no later token, so what
    comes before the first change is not computed again: layers before it are skipped, and so are earlier tokens where
    the cache can be cut (causal assignment, no layer with a sliding window of its own).

    Args:
        focus: the composition; its settings in force are those of the kept pass.
        ids: T token ids.
    """

    @torch.no_grad()
    def __init__(self, focus: FocusModel, ids: list[int]) -> None:
        self.focus = focus
        self.ids = torch.tensor([ids], device=input_device(focus.model))
        self.blocks = decoder_layers(focus.model)
        self._outputs: dict[int, Any] = {}
        modules = attention_modules(focus.model).values()
        self._cuts = focus.config.assignment == "causal" and not any(map(sliding_window_of, modules))
        self._cache = DynamicCache() if self._cuts else None
        with _observe_outputs(self.blocks, self._outputs):
            self.hidden = self._read(self.ids, self._cache)

    @torch.no_grad()
    def changed(self, first_layer: int, first_token: int, pairs: Mapping[int, Tensor]) -> Tensor:
        """Hidden states before the output embedding, with pairs added to the mask.

        Args:
            first_layer: no layer before it is changed.
            first_token: no token before it is changed.
            pairs: as in `FocusModel.with_added_pairs`.

        Returns:
            (1, n, d) of the last n tokens, those from `first_token` on or more.
        """
        start = first_token if self._cuts else 0
        cache = None
        if self._cache is not None and start:
            cache = copy.deepcopy(self._cache)
            cache.crop(start - self.ids.shape[1])
        with self.focus.with_added_pairs(pairs), self._skipping(first_layer, start):
            return self._read(self.ids[:, start:], cache)

    def _read(self, ids: Tensor, cache: Any) -> Tensor:
        if cache is None:
            return final_hidden(self.focus.model, ids)
        network: Any = self.focus.model
        return network.base_model(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state

    @contextmanager
    def _skipping(self, first_layer: int, start: int) -> Iterator[None]:
        """Layers before the first changed one return what they returned in the kept pass."""
        skipped = {index: block for index, block in self.blocks.items() if index < first_layer}
        before = {index: block.__dict__.get("forward") for index, block in skipped.items()}
        try:
            for index, block in skipped.items():
                kept = _from(self._outputs[index], start)
                block.__dict__["forward"] = lambda *args, kept=kept, **kwargs: kept
            yield
        finally:
            for index, block in skipped.items():
                if before[index] is None:
                    block.__dict__.pop("forward", None)
                else:
                    block.__dict__["forward"] = before[index]


@contextmanager
def _observe_outputs(blocks: Mapping[int, nn.Module], outputs: dict[int, Any]) -> Iterator[None]:
    def keep(index: int) -> Any:
        return lambda module, args, output: outputs.__setitem__(index, output)

    hooks = [block.register_forward_hook(keep(index)) for index, block in blocks.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _from(output: Any, start: int) -> Any:
    """What a block returned for the tokens from `start` on."""
    if isinstance(output, tuple):
        return (output[0][:, start:], *output[1:])
    return output[:, start:]
