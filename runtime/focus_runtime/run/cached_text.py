"""A text from its key-value cache: a prompt continued token by token, and a text while somebody types it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError
from focus_runtime.measure.loss import final_hidden, vocabulary_logits
from focus_runtime.measure.timing import MODES, attending, milliseconds
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import attention_modules, cache_argument, sliding_window_of


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token of a mode, "full" or "focus"."""

    mode: str
    token_id: int
    groups: dict[int, int] | None  # the most probable by layer; full attention has none (see `groups_afterwards`)
    milliseconds: float  # what computing the next token took


class _Writer:
    """One mode's cache and its next token."""

    def __init__(self, focus: FocusModel, mode: str, ids: Tensor, temperature: float) -> None:
        self.focus, self.mode, self.temperature = focus, mode, temperature
        self._given = cache_argument(focus.model, DynamicCache(config=focus.model.config))
        self.logits = self._forward(ids)

    def _forward(self, ids: Tensor) -> Tensor:
        model: Any = self.focus.model
        with attending(self.focus, self.mode):
            out = model(input_ids=ids, **self._given, use_cache=True, logits_to_keep=1)
        return out.logits[0, -1].float()

    def step(self, noise: Tensor) -> Step:
        """Choose a token, then read it, which decides its groups and the next token's probabilities."""
        scores = self.logits if self.temperature == 0 else self.logits / self.temperature + noise
        token = scores.argmax()

        def read() -> None:
            self.logits = self._forward(token[None, None])

        spent, groups = milliseconds(read, token.device), None
        if self.mode == "focus":
            groups = {index: int(one.probabilities[0, -1].argmax()) for index, one in self.focus.assignments().items()}
        return Step(self.mode, int(token), groups, spent)


@torch.no_grad()
def generate_both(
    focus: FocusModel, ids: Tensor, *, max_tokens: int, temperature: float = 0.0, seed: int = 0, stop_ids: Any = ()
) -> Iterator[Step]:
    """Yield tokens of both modes in turn until each has `max_tokens` or an end token.

    With a temperature both modes share the random numbers of every step (the Gumbel trick), so they part only where
    their probabilities differ. `ids` are the prompt, (1, T) on the model's device.
    """
    writers = [_Writer(focus, mode, ids, temperature) for mode in MODES]
    generator = torch.Generator().manual_seed(seed)
    size = writers[0].logits.shape[0]
    for _ in range(max_tokens):
        uniform = torch.rand(size, generator=generator).clamp_(1e-9, 1 - 1e-7)
        noise = (-torch.log(-torch.log(uniform))).to(ids.device)
        for writer in list(writers):
            step = writer.step(noise)
            yield step
            if step.token_id in stop_ids:
                writers.remove(writer)
        if not writers:
            return


@torch.no_grad()
def groups_afterwards(focus: FocusModel, ids: Tensor, start: int) -> list[dict[int, int]]:
    """The groups Focus gives to the tokens from position `start` on when it reads a whole text, (1, T) ids."""
    final_hidden(focus.model, ids)
    tops = {
        index: assignment.probabilities[0, start:].argmax(-1).tolist()
        for index, assignment in focus.assignments().items()
    }
    return [{index: top[number] for index, top in tops.items()} for number in range(ids.shape[1] - start)]


@dataclass(slots=True)
class LiveText:
    """One text with what Focus decided of it so far."""

    focus: FocusModel  # attached while `read` runs
    ids: list[int] = field(default_factory=list)
    groups: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by layer, the most probable of every token
    logits: torch.Tensor | None = None  # (V,) of the token after the last one; None for an empty text
    _cache: Any = None

    def __post_init__(self) -> None:
        if self.focus.config.assignment != "causal":
            raise InputError(
                "sinkhorn assignment looks at the whole text, which does not exist yet while one types",
                expected="causal assignment",
            )

    @torch.no_grad()
    def read(self, ids: Sequence[int]) -> int:
        """Read the text from the first token that differs, the last one at least; returns how many tokens were read."""
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
