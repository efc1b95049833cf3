"""Run a text again from the first layer and the first token that a change touches."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import recorded_outputs, resumed_at
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.device_map import input_device
from focus_runtime.models.structure import attention_modules, cache_argument, sliding_window_of


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
        modules = attention_modules(focus.model).values()
        self._cuts = focus.config.assignment == "causal" and not any(map(sliding_window_of, modules))
        self._cache = DynamicCache() if self._cuts else None
        with recorded_outputs(focus.model) as self._recorded:
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
        resumed = resumed_at(self.focus.model, first_layer, self._recorded, start)
        with self.focus.with_added_pairs(pairs), resumed:
            return self._read(self.ids[:, start:], cache)

    def _read(self, ids: Tensor, cache: Any) -> Tensor:
        if cache is None:
            return final_hidden(self.focus.model, ids)
        network: Any = self.focus.model
        given = cache_argument(network.base_model, cache)
        return network.base_model(input_ids=ids, **given, use_cache=True).last_hidden_state
