"""What one token attends to under full attention and under Focus, by layer and head: its strongest keys.

Each side is the model's own pass with that attention in every layer, so deeper layers of the two read different inputs.

Shape suffixes: B batch, H query heads, K key-value heads, T keys, D head size, N keys kept, R rows: the mean and heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import HeadMask
from focus_runtime.composition.observe import observe_attention, observe_focus
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.measure.attention_mass import full_probabilities
from focus_runtime.measure.loss import check_positions, final_hidden
from focus_runtime.models.devices import input_device

STRONGEST = 16
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The strongest keys of one token in one layer: R rows, the mean over its H query heads and then each of them.

    Attributes:
        keys: (R, N) positions, those with the most attention of either kind first; -1 where there are fewer.
        full, focus: (R, N) their probabilities.
        full_kept: (R,) full attention's probability on all pairs that Focus keeps, not on the N alone.
    """

    layer: int
    keys: NDArray[np.int64]
    full: NDArray[np.float32]
    focus: NDArray[np.float32]
    kept: NDArray[np.float32]  # (R, N) share of the row's heads whose mask keeps the pair, 0 or 1 for a single head
    full_kept: NDArray[np.float32]


@torch.no_grad()
def token_attention(
    focus: FocusModel,
    ids: Sequence[int],
    token: int,
    *,
    strongest: int = STRONGEST,
    progress: Progress = lambda done, total: None,
) -> list[LayerAttention]:
    """Read the text with Focus and with full attention, and compare what one token attends to in each focused layer.

    Tokens after it are read only where the assignment looks at the whole text. `strongest` is N; `progress` gets the
    number of layers done, of both passes, and the total, and may raise to stop.
    """
    if not 0 <= token < len(ids):
        raise InputError(f"there is no token {token}", expected=f"0 to {len(ids) - 1}")
    read = list(ids[: token + 1] if focus.config.assignment == "causal" else ids)
    check_positions(focus.model, len(read))
    text_BT = torch.tensor([read], device=input_device(focus.model))
    layers = focus.focused_layers
    logits: dict[int, Tensor] = {}  # under Focus, before its mask is known
    full: dict[int, Tensor] = {}
    at, seen = slice(token, token + 1), slice(token + 1)

    def on_focus(layer: FocusLayer, call: Call, out: Tensor) -> None:
        key_KTD = call.key[0, :, seen].float()
        grouped = call.query[0, :, token].float().unflatten(0, (key_KTD.shape[0], -1))
        logits_HT = (grouped @ key_KTD.transpose(-1, -2) * call.scoring.scale).flatten(0, 1)
        logits[layer.index] = call.scoring.capped(logits_HT)
        progress(len(logits), 2 * len(layers))

    def on_full(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        reach = layer.sliding or len(read)
        full[layer.index] = full_probabilities(query[:, :, at], key[:, :, seen], token, reach, scale, softcap)[0, :, 0]
        progress(len(logits) + len(full), 2 * len(layers))

    with observe_focus(focus, on_focus):
        final_hidden(focus.model, text_BT)
    masks = focus.head_masks()
    with observe_attention(focus, on_full):
        final_hidden(focus.model, text_BT)
    return [_compared(layer, full[layer], logits[layer], masks[layer], token, strongest) for layer in layers]


def _compared(
    layer: int, full_HT: Tensor, logits_HT: Tensor, masks: Sequence[HeadMask], token: int, strongest: int
) -> LayerAttention:
    allowed_HT = _allowed(masks, logits_HT, token)
    focus_HT = logits_HT.masked_fill(~allowed_HT, float("-inf")).softmax(dim=-1)
    allowed_HT = allowed_HT.float()
    full_RT, focus_RT, kept_RT, mass_RT = (
        torch.cat([rows.mean(dim=0, keepdim=True), rows])
        for rows in (full_HT, focus_HT, allowed_HT, full_HT * allowed_HT)
    )
    most_RN, keys_RN = torch.maximum(full_RT, focus_RT).topk(min(strongest, token + 1), dim=-1)
    keys_RN = keys_RN.masked_fill(most_RN == 0, -1)
    at_RN = keys_RN.clamp_min(0)
    full, focus, kept = (rows.gather(1, at_RN).cpu().numpy() for rows in (full_RT, focus_RT, kept_RT))
    return LayerAttention(layer, keys_RN.cpu().numpy(), full, focus, kept, mass_RT.sum(dim=-1).cpu().numpy())


def _allowed(masks: Sequence[HeadMask], like_HT: Tensor, token: int) -> Tensor:
    """(H, T) pairs of one query that Focus computes."""
    allowed_HT = torch.zeros_like(like_HT, dtype=torch.bool)
    told_apart = allowed_HT.unflatten(0, (sum(len(mask.group.heads) for mask in masks), -1))
    at, place_T = slice(token, token + 1), torch.arange(like_HT.shape[1], device=like_HT.device)
    for mask in masks:
        member_T = mask.membership[0, : len(place_T)].to(like_HT.device)
        told_apart[list(mask.group.heads)] = allowed_pairs(member_T[at], member_T, place_T[at], place_T, mask.rule)
    return allowed_HT
