"""Continue one prompt with full attention and with Focus, token by token in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.timing import MODES, attending, synchronise
from focus_runtime.models.structure import cache_argument


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token.

    Attributes:
        mode: "full" or "focus".
        token_id: the token.
        groups: its most probable group by layer; None for full attention, which has none (see `groups_afterwards`).
        milliseconds: what computing the next token took; 0 for the last one.
    """

    mode: str
    token_id: int
    groups: dict[int, int] | None
    milliseconds: float


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
        synchronise(token.device)
        start = time.perf_counter()
        self.logits = self._forward(token[None, None])
        synchronise(token.device)
        spent = (time.perf_counter() - start) * 1000
        return Step(self.mode, int(token), _groups(self.focus, -1) if self.mode == "focus" else None, spent)


def _groups(focus: FocusModel, position: int) -> dict[int, int]:
    return {
        index: int(assignment.probabilities[0, position].argmax()) for index, assignment in focus.assignments().items()
    }


@torch.no_grad()
def generate_both(
    focus: FocusModel, ids: Tensor, *, max_tokens: int, temperature: float = 0.0, seed: int = 0, stop_ids: Any = ()
) -> Iterator[Step]:
    """Yield tokens of both modes in turn until each has `max_tokens` or an end token.

    With a temperature both modes share the random numbers of every step (the Gumbel trick), so they part only where
    their probabilities differ.

    Args:
        max_tokens: of each mode.
        seed: of the random numbers.
        focus: a composed model with causal assignment.
        ids: (1, T) prompt on the model's device.
        temperature: 0 always takes the most probable token.
        stop_ids: tokens after which a mode ends.
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
    """The groups Focus gives to the tokens from position `start` on when it reads a whole text, (1, T) ids.

    Args:
        focus: a composed model.
        ids: (1, T) token ids on the model's device.
        start: first position whose groups are returned.
    """
    final_hidden(focus.model, ids)
    tops = {
        index: assignment.probabilities[0, start:].argmax(-1).tolist()
        for index, assignment in focus.assignments().items()
    }
    return [{index: top[number] for index, top in tops.items()} for number in range(ids.shape[1] - start)]
