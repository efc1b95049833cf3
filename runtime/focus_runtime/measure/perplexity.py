"""Perplexity of texts of any length by sliding evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.models.devices import input_device
from focus_runtime.text.special import DEFAULT, added_tokens, begins_with
from focus_runtime.text.tokens import tokenize


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood of the scored tokens.

    Attributes:
        value: the perplexity.
        scored: how many tokens it is over.
        nll: (scored,) float64 nats, in text order.
        length: most tokens a score is conditioned on, its own included.
        stride: tokens a window moves by; beyond the first window, at least length - stride tokens precede every score.
    """

    value: float
    scored: int
    nll: NDArray[np.float64]
    length: int
    stride: int

    def __float__(self) -> float:
        return self.value


def _text_ids(text: Any, tokenizer: Any, special_tokens: str) -> list[int]:
    if isinstance(text, str):
        if tokenizer is None:
            raise InputError(
                "a text was given without a tokenizer",
                expected="tokenizer=..., or token ids in place of the text",
                fix="load_model() gives the model and its tokenizer",
            )
        return tokenize(tokenizer, text, special_tokens=special_tokens).ids
    if not isinstance(text, Tensor | np.ndarray | Sequence):
        raise InputError(f"the text is {type(text).__name__}", expected="a string, or the token ids of one text")
    ids = text.tolist() if isinstance(text, Tensor | np.ndarray) else list(text)
    if ids and isinstance(ids[0], list):
        if len(ids) != 1:
            raise InputError(f"{len(ids)} texts were given", expected="one text: a string, or its token ids")
        ids = ids[0]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in ids):
        raise InputError("the token ids hold something else", expected="whole numbers")
    return ids


def _sliding_nll(model: Any, prefix: list[int], ids: list[int], length: int, stride: int) -> NDArray[np.float64]:
    """Losses of the tokens after a prefix, which begins every window; without one the first token has none."""
    device, own = input_device(model), length - len(prefix)
    parts: list[Tensor] = []
    done, start = 0 if prefix else 1, 0
    while done < len(ids):
        window = torch.tensor([prefix + ids[start : start + own]], device=device)
        nll = token_nll(model, final_hidden(model, window), window)[0]
        parts.append(nll[len(prefix) + done - start - 1 :].double().cpu())
        done = min(start + own, len(ids))
        start = min(start + min(stride, own), max(0, len(ids) - 1))
    losses: NDArray[np.float64] = torch.cat(parts).numpy()
    return losses


@torch.no_grad()
def perplexity(
    model: Any,
    text: Any,
    *,
    tokenizer: Any = None,
    length: int = 1024,
    stride: int | None = None,
    max_tokens: int | None = None,
    special_tokens: str = DEFAULT,
) -> Perplexity:
    """Perplexity of a text of any length by sliding evaluation: overlapping windows, every token scored once.

    Every window begins with what the tokenizer puts before a text, such as BOS, which is not scored.

    Args:
        model: a Hugging Face causal language model, or what `compose` returned (then under Focus).
        text: a string, or the token ids of one text.
        tokenizer: needed for a string, and for windows that begin with BOS where token ids do.
        length: tokens of a window.
        stride: tokens by which the window moves; half of `length` when None.
        max_tokens: score at most the first so many tokens.
        special_tokens: "auto" for what the tokenizer puts before a text, "none" for no token.

    Raises:
        InputError: too little text, or settings out of range.
    """
    model = model.model if isinstance(model, FocusModel) else model
    if stride is None and isinstance(length, int):
        stride = max(1, length // 2)
    for name, number in (("length", length), ("stride", stride), ("max_tokens", max_tokens)):
        optional = number is None and name == "max_tokens"
        if not optional and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise InputError(f"{name} is {number!r}", expected="a whole number of at least 1")
    assert stride is not None
    if length < 2 or not 1 <= stride < length:
        raise InputError(
            f"length is {length} and stride {stride}",
            expected="length of at least 2, and a stride from 1 to length - 1, so that every token has one before it",
        )
    ids = _text_ids(text, tokenizer, special_tokens)[:max_tokens]
    if len(ids) < 2:
        raise InputError(f"the text has {len(ids)} tokens", expected="at least 2: the first one has nothing before it")
    check_positions(model, min(length, len(ids)))
    known = model.get_input_embeddings().num_embeddings
    if min(ids) < 0 or max(ids) >= known:
        raise InputError(
            f"the token ids run from {min(ids)} to {max(ids)}",
            expected=f"ids of this model, 0 to {known - 1}",
            fix="use the model's own tokenizer",
        )
    prefix = () if tokenizer is None else added_tokens(tokenizer, special_tokens).ids
    prefix = prefix if begins_with(ids, prefix) else ()
    if length <= len(prefix):
        raise InputError(
            f"length is {length}", expected=f"more than the {len(prefix)} tokens that the tokenizer puts before a text"
        )
    losses = _sliding_nll(model, list(prefix), ids[len(prefix) :], length, stride)
    return Perplexity(math.exp(losses.mean()), int(losses.size), losses, length, stride)
