"""What transformers asks of a mask: which tokens are padding, and which are one document that sees itself alone.

transformers describes every mask by a function of positions. `focus_mask` reads it: plainly causal masks, sliding
windows, packed documents and fixed chunks are understood, and anything else is looked at pair by pair and refused
unless it is one of these after all. Focus runs every document as a text: positions, sinks and windows begin with it.

Shape suffixes: B batch, Q queries, T keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import masking_utils

from focus_runtime.errors import InputError, ModelError

MOST_PAIRS = 1 << 27  # of a mask that is looked at pair by pair
REFUSED = torch.int8
LATER, OTHER_PAIRS, TOO_MANY = range(3)
REASONS = (
    "this pass lets some tokens attend to later ones (spans such as images, or a model that is not causal)",
    "this pass leaves out pairs that are neither padding, nor of two documents, nor beyond a sliding window",
    "the mask is none that Focus knows, and has too many pairs to look at",
)
PLAIN = "run it inside full_attention()"
FOCUS_MASK = "focus_mask"  # attribute of a mask of pairs, with the mask that `focus_mask` gives beside it
PACKED = "pass position_ids that start again at 0 with every document, no attention_mask, and use_cache=False"


@dataclass(frozen=True, slots=True)
class Span:
    """One document, `start` to `stop` among the keys at hand, in rows of the batch that have it at the same place."""

    rows: slice
    start: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class Documents:
    """The documents of a batch, in order."""

    numbers: Tensor  # (B, T) int64, the same for all tokens of a document; 0 for padding
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, numbers: Tensor) -> Documents:
        """The documents of (B, T) int64 numbers, each a run of equal ones."""
        rows = numbers.tolist()
        if all(row == rows[0] for row in rows):
            return cls(numbers, tuple(_runs(rows[0], slice(0, len(rows)))))
        return cls(numbers, tuple(span for b, row in enumerate(rows) for span in _runs(row, slice(b, b + 1))))

    def starts(self) -> Tensor:
        """(B, T) int64, the place of the first token of each token's document."""
        place_BT = torch.arange(self.numbers.shape[1], device=self.numbers.device).expand_as(self.numbers)
        return torch.where(_begins(self.numbers), place_BT, 0).cummax(dim=1).values


def _runs(numbers: list[int], rows: slice) -> list[Span]:
    edges = [0, *(i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1]), len(numbers)]
    return [Span(rows, start, stop) for start, stop in itertools.pairwise(edges) if numbers[start]]


def _begins(labels: Tensor) -> Tensor:
    """(B, T) bool: whether a label (B, T) differs from the one before it."""
    changes = labels[:, 1:] != labels[:, :-1]
    return torch.cat([torch.ones_like(labels[:, :1], dtype=torch.bool), changes], dim=1)


def by_token(mask: Any, layer: int, *, beside: bool = False) -> Tensor | None:
    """What `focus_mask` returned, as the model passes it on to a layer: (B, T) bool or int64, None without padding.

    `beside`: the mask is one of pairs, with that for Focus as an attribute, which slices of it have not.
    """
    if beside:
        one_for_all = not isinstance(mask, Tensor) or mask.shape[1] == 1
        mask = getattr(mask, FOCUS_MASK, None if one_for_all else mask)
    if not isinstance(mask, Tensor):
        return None
    if mask.dim() == 2:
        return mask.bool()
    if mask.dim() == 4 and mask.shape[1] == mask.shape[2] == 1:
        if mask.dtype in (torch.bool, torch.int64):
            return mask[:, 0, 0]
        if mask.dtype == REFUSED:
            raise ModelError(
                f"layer {layer}: {REASONS[int(mask.flatten()[0])]}, which Focus does not support", fix=PLAIN
            )
    raise ModelError(
        f"layer {layer} got a mask of shape {tuple(mask.shape)}, of single pairs, which Focus cannot follow",
        expected="an attention_mask of shape (batch, tokens) with 0 for padding, or none",
        fix=f"for packed documents {PACKED}",
    )


def documents_of(mask: Tensor | None, arguments: Mapping[str, Any], known: Documents | None = None) -> Documents | None:
    """The documents of an attention call, `known` where they have not changed; None where every row is one text.

    Among the other `arguments` of a call, `cu_seq_lens_q` gives the edges of packed documents, as for FlashAttention.
    """
    edges = arguments.get("cu_seq_lens_q")
    if edges is None and (mask is None or mask.dtype != torch.int64):
        return None
    numbers = mask if edges is None else _between(edges, mask)
    assert numbers is not None
    if known is not None and (known.numbers is numbers or torch.equal(known.numbers, numbers)):
        return known
    return Documents.of(numbers)


def _between(edges: Any, mask: Tensor | None) -> Tensor:
    """(1, T) numbers of the documents between (N + 1,) edges."""
    lengths = torch.diff(edges.to(torch.int64).cpu())
    if edges.dim() != 1 or len(edges) < 2 or int(edges[0]) != 0 or not bool((lengths >= 0).all()):
        raise InputError(
            f"cu_seq_lens_q is {edges.tolist()}", expected="0, then the end of every document, none before the last"
        )
    numbers = torch.repeat_interleave(torch.arange(1, len(lengths) + 1), lengths)[None].to(edges.device)
    if mask is None:
        return numbers
    if mask.shape != numbers.shape:
        raise InputError(
            f"cu_seq_lens_q ends at {numbers.shape[1]:,}; there are {mask.shape[0]} rows of {mask.shape[1]:,} tokens",
            expected="one row whose documents add up to its tokens",
            fix=PACKED,
        )
    begins = _begins(numbers.to(mask.device))
    contradicted = begins & ~_begins(mask)  # a layer of chunks has further edges, which contradict nothing
    if mask.dtype != torch.int64 or bool(contradicted.any()):
        raise InputError("cu_seq_lens_q and attention_mask or position_ids name different documents", fix=PACKED)
    return mask


def focus_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """The mask function registered with transformers for Focus: None, or (B, 1, 1, T), which models may slice.

    It is bool, True for real tokens; or int64, numbers of documents and 0 for padding; or `REFUSED`, a place in
    `REASONS`. None where all tokens are real and every row is one text.
    """
    padding_BT: Tensor | None = masking_utils.flash_attention_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask
    )
    padding_B11T = None if padding_BT is None else padding_BT[:, None, None]
    if mask_function is masking_utils.causal_mask_function:
        return padding_B11T
    position_1T = torch.arange(kv_length, device=kwargs.get("device"))[None] + kv_offset
    asked = _asked(mask_function, position_1T)
    if asked is None or not asked.causal:
        sizes = (batch_size, q_length, kv_length, q_offset, kv_offset)
        found = _looked_at(sizes, mask_function, attention_mask, kwargs)
        if isinstance(found, int):  # refused by the layers that it reaches: a decoder's encoder may have one as well
            return torch.full((batch_size, 1, 1, kv_length), found, dtype=REFUSED, device=kwargs.get("device"))
        labels = found
    else:
        labels = [each.expand(batch_size, -1) for each in asked.labels]
    begins = [_begins(each) for each in labels]
    begins = [each for each in begins if bool(each[:, 1:].any())]
    if not begins:
        return padding_B11T
    numbers_BT = torch.stack(begins).any(dim=0).cumsum(dim=1)
    if padding_BT is not None:
        numbers_BT = numbers_BT * pad(padding_BT, (0, kv_length - padding_BT.shape[1]))
    return numbers_BT[:, None, None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whether no token sees a later one, and labels, each (B or 1, T), in all of which a pair must agree."""

    causal: bool = False
    labels: tuple[Tensor, ...] = ()


def _asked(function: Callable[..., Any], position_BT: Tensor) -> _Asked | None:
    """What one of transformers' own mask functions asks for at positions (B or 1, T) of the keys; None for others."""
    kind, own = _read(function)
    match kind:
        case "causal_mask_function":
            return _Asked(causal=True)
        case "sliding_window_overlay":  # the layer's attention call says the same
            return _Asked()
        case "packed_sequence_mask_function":
            return _Asked(labels=(own["packed_sequence_mask"],))
        case "chunked_overlay":
            return _Asked(labels=((position_BT - own["left_padding"][:, None]) // own["chunk_size"],))
        case "remap_positions_for_packed_sequence":
            return _asked(own["mask_function"], own["position_ids"])
        case "or_masks":  # blocks of images, of which a text has none
            others = [part for part in own["mask_functions"] if not _is_empty(part)]
            return _asked(others[0], position_BT) if len(others) == 1 else None
        case "and_masks":
            parts = [_asked(part, position_BT) for part in own["mask_functions"]]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            return _Asked(any(part.causal for part in known), sum((part.labels for part in known), ()))
    return None


def _read(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Which of transformers' own mask functions this is, and what it was made with."""
    if getattr(function, "__module__", "") != masking_utils.__name__:
        return "", {}
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return function.__qualname__.split(".")[0], {n: cell.cell_contents for n, cell in zip(names, cells, strict=True)}


def _is_empty(function: Callable[..., Any]) -> bool:
    """Whether a mask function adds no pair: blocks that no token is in."""
    kind, own = _read(function)
    return kind == "blockwise_overlay" and bool((own["block_sequence_ids"] < 0).all())


def _window(function: Callable[..., Any]) -> int | None:
    """The sliding window that a mask is limited to, None where it is not."""
    kind, own = _read(function)
    if kind == "sliding_window_overlay":
        return int(own["sliding_window"])
    windows = [_window(part) for part in own["mask_functions"]] if kind == "and_masks" else []
    return next((window for window in windows if window is not None), None)


def _looked_at(
    sizes: tuple[int, int, int, int, int],
    function: Callable[..., Any],
    attention_mask: Tensor | None,
    kwargs: Mapping[str, Any],
) -> list[Tensor] | int:
    """Labels, (B, T), of the documents of any mask, found in its pairs; or a place in `REASONS`."""
    batch, length_q, length_k, offset_q, offset_k = sizes
    if batch * length_q * length_k > MOST_PAIRS:
        return TOO_MANY
    own = {name: kwargs[name] for name in ("device", "use_vmap") if name in kwargs}
    allowed_BQT = masking_utils.sdpa_mask(*sizes, function, attention_mask, allow_is_causal_skip=False, **own)[:, 0]
    query_Q1 = torch.arange(length_q, device=allowed_BQT.device)[:, None] + offset_q
    key_1T = torch.arange(length_k, device=allowed_BQT.device)[None] + offset_k
    reach = _window(function) or length_k + offset_k + length_q + offset_q
    causal_QT = (key_1T <= query_Q1) & (key_1T > query_Q1 - reach)
    real_B1T = torch.ones_like(allowed_BQT[:, :1])
    if attention_mask is not None:
        real_B1T = masking_utils.prepare_padding_mask(attention_mask, length_k, offset_k)[:, None, -length_k:].bool()
    real_BQT = real_B1T & real_B1T.transpose(1, 2)[:, -length_q:] if length_q <= length_k else real_B1T
    if bool(((allowed_BQT == (causal_QT & real_B1T)) | ~real_BQT).all()):
        return []
    if bool((allowed_BQT & (key_1T > query_Q1) & real_BQT).any()):
        return LATER
    first_BQ = allowed_BQT.to(torch.int8).argmax(dim=2)
    kept_BQT = causal_QT & (key_1T - offset_k >= first_BQ[..., None]) & real_B1T
    whole = length_q == length_k and torch.equal(first_BQ.gather(1, first_BQ), first_BQ)
    if not whole or not bool(((allowed_BQT == kept_BQT) | ~real_BQT).all()):
        return OTHER_PAIRS
    return [first_BQ]
