"""Single pairs that attend in addition to the mask of one layer: what a dropped link would have done.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, N pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor

from focus_runtime.attention.reference import Scoring
from focus_runtime.budget import query_numbers
from focus_runtime.composition.heads import HeadMask, counts_of
from focus_runtime.errors import InputError
from focus_runtime.mask.dense import allowed_pairs


def check_added_pairs(pairs: Mapping[int, Tensor], layers: Collection[int]) -> None:
    """Refuse pairs that no mask could have.

    Args:
        pairs: by layer, (N, 3) query head, query and key.
        layers: focused layers.

    Raises:
        InputError: a layer is not focused, or a key comes after its query.
    """
    for layer, pairs_N3 in pairs.items():
        if layer not in layers:
            raise InputError(
                f"layer {layer} attends to everything already",
                expected="a layer that Focus runs in",
                fix="take another",
            )
        if bool((pairs_N3[:, 2] > pairs_N3[:, 1]).any()) or bool((pairs_N3 < 0).any()):
            raise InputError("a token cannot see a later one", expected="a key at or before its query")


def attend_with_added(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scoring: Scoring,
    masks: Sequence[HeadMask],
    out_BQHD: Tensor,
    pairs_N3: Tensor,
    total: int,
) -> Tensor:
    """The same output, the rows of the added pairs computed again with their keys.

    Args:
        query: (1, Hq, Q, D); key, value: (1, Hkv, T, D), the last T of the text.
        scoring: scale and softcap.
        masks: of the layer's groups of heads, for the same T tokens.
        out_BQHD: what the mask alone gives; it stays as it is.
        pairs_N3: query head, query and key by position in the text. Queries before the given ones are left out.
        total: tokens of the whole text.

    Returns:
        (1, Q, Hq, D).

    Raises:
        InputError: several texts at once, or a key that the layer's own sliding window does not reach.
    """
    if query.shape[0] != 1:
        raise InputError(f"pairs cannot be added to {query.shape[0]} texts at once", expected="one text")
    first_query, first_key = total - query.shape[2], total - key.shape[2]
    position_T = torch.arange(first_key, total, device=key.device)
    counts = counts_of(query, key)
    mask_of = {head: mask for mask in masks for head in query_numbers(mask.group, counts)}
    out_BQHD = out_BQHD.clone()
    exact = torch.promote_types(query.dtype, torch.float32)
    for (head, row), pairs in groupby(sorted(pairs_N3.tolist()), key=lambda pair: (pair[0], pair[1])):
        if row < first_query:
            continue
        keys, mask = [pair[2] for pair in pairs], mask_of[head]
        if row - min(keys) > mask.rule.farthest(total) or min(keys) < first_key:
            raise InputError(
                f"token {min(keys)} lies beyond the sliding window of this layer, seen from token {row}",
                expected=f"a key at most {mask.rule.farthest(total)} tokens before",
            )
        bits_BT, at = mask.membership, slice(row - first_key, row - first_key + 1)
        allowed_T = allowed_pairs(bits_BT[:, at], bits_BT, position_T[at], position_T, mask.rule)[0, 0]
        allowed_T[torch.tensor(keys, device=key.device) - first_key] = True
        shared = head // counts.shared_by
        scores_T = key[0, shared].to(exact) @ query[0, head, row - first_query].to(exact) * scoring.scale
        weights_T = scoring.capped(scores_T).masked_fill(~allowed_T, float("-inf")).softmax(dim=0)
        out_BQHD[0, row - first_query, head] = (weights_T @ value[0, shared].to(exact)).to(out_BQHD.dtype)
    return out_BQHD
