"""The same text under explicit masks, one for each layer and query head: what explanations are checked against."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

from focus_runtime.mask.allowed_pairs import allowed_pairs

NAME, STATE = "explicit_masks", {}


def attend(module, query, key, value, attention_mask, scaling=None, softcap=None, **kwargs):
    """Plain softmax attention under the mask of the layer, one output row moved towards another mask's where asked."""
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
    scores = query @ key.transpose(-1, -2) * scale
    if STATE.get("factors"):
        scores = scores * STATE["factors"][module.layer_idx][..., None]
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    mask = STATE["masks"][module.layer_idx]
    out = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ value
    move = STATE.get("move")
    if move is not None and move[0] == module.layer_idx:
        _, head, row, column, amount = move
        wider = mask[head, row].clone()
        wider[column] = True
        other = scores[0, head, row].masked_fill(~wider, float("-inf")).softmax(dim=-1) @ value[0, head]
        out = out.clone()
        out[0, head, row] += amount * (other - out[0, head, row])
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, flash_attention_mask)


def head_allowed(focus, added=None):
    """(Hq, T, T) bool by layer: what the latest Focus pass executed; `added` are further pairs."""
    masks = {}
    for layer, of_heads in focus.head_masks().items():
        by_head = {}
        for mask in of_heads:
            bits = mask.membership[0]
            position = torch.arange(bits.numel())
            allowed = allowed_pairs(bits, bits, position, position, mask.rule)
            by_head |= dict.fromkeys(mask.group.heads, allowed)
        shared = focus.model.config.num_attention_heads // len(by_head)
        masks[layer] = torch.stack([by_head[head] for head in sorted(by_head)]).repeat_interleave(shared, dim=0)
    for layer, pairs in (added or {}).items():
        for head, row, column in pairs:
            masks[layer][head, row, column] = True
    return masks


@contextmanager
def explicit_masks(model, masks, move=None, factors=None):
    """The model without Focus under masks of our own.

    `move` is (layer, head, row, key, amount), `factors` by layer (Hq, T), by which each row's logits are multiplied.
    """
    before = model.config._attn_implementation
    STATE.update(masks=masks, move=move, factors=factors)
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        STATE.clear()


@torch.no_grad()
def next_loss(model, ids, target):
    """Loss in nats of the token after the text."""
    return -float(model(torch.tensor([ids]), use_cache=False).logits[0, -1].double().log_softmax(-1)[target])
