"""A text that is being typed: groups of its tokens from a key-value cache, computed from the first changed one on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError
from focus_runtime.measure.loss import vocabulary_logits
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import attention_modules, cache_argument, sliding_window_of


@dataclass(slots=True)
class LiveText:
    """One text with what Focus decided of it so far.

    Attributes:
        focus: a composition with causal assignment; attached while `read` runs.
        ids: token ids of the text as it was read last.
        groups: by layer, the most probable group of every token.
        logits: (V,) of the token after the last one; None for an empty text.
    """

    focus: FocusModel
    ids: list[int] = field(default_factory=list)
    groups: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    logits: torch.Tensor | None = None
    _cache: Any = None

    def __post_init__(self) -> None:
        if self.focus.config.assignment != "causal":
            raise InputError(
                "sinkhorn assignment looks at the whole text, which does not exist yet while one types",
                expected="causal assignment",
            )

    @torch.no_grad()
    def read(self, ids: Sequence[int]) -> int:
        """Read the text as it is now, from the first token that differs; the last token is always read.

        Args:
            ids: T token ids.

        Returns:
            How many tokens were read.
        """
        if not ids:
            self.ids, self.groups, self.logits, self._cache = [], {}, None, None
            return 0
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self.ids, ids, strict=False)))
        start = self._cut(min(same, len(ids) - 1))
        new = torch.tensor([list(ids[start:])], device=input_device(self.focus.model))
        network: Any = self.focus.model
        given = cache_argument(network.base_model, self._cache)
        hidden = network.base_model(input_ids=new, **given, use_cache=True).last_hidden_state
        for layer, assignment in self.focus.assignments().items():
            own = assignment.probabilities[0].argmax(dim=-1).cpu().numpy()
            self.groups[layer] = np.concatenate([self.groups.get(layer, own[:0])[:start], own])
        self.logits = vocabulary_logits(self.focus.model, hidden[:, -1:])[0, 0]
        self.ids = list(ids)
        return len(ids) - start

    def _cut(self, start: int) -> int:
        """Shorten the cache to the tokens before `start`, or empty it where it cannot be; returns what to read from."""
        sliding = any(map(sliding_window_of, attention_modules(self.focus.model).values()))
        if self._cache is None or sliding or start == 0:
            network: Any = self.focus.model
            self._cache = DynamicCache(config=network.config) if sliding else DynamicCache()
            return 0
        if start < len(self.ids):
            self._cache.crop(start - len(self.ids))
        return start
