"""Exact Focus attention for a few queries over many keys: find the keys they may see, gather those rows, attend.

Finding them is one pass over the bit sets, 8 bytes a token; keys and values, hundreds of times larger, are read only
where a query may look. So the time of a decode step follows the keys it attends to, not the text's length. Any device,
any k, padding and softcap, with gradients.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), Q queries (Tq), T keys (Tk), D head size;
n gathered keys, r = Q * H / G the queries of one key head, N rows of a table.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.flash import masked_flash
from focus_runtime.attention.reference import Scoring, attend_allowed, needs_gradient
from focus_runtime.gpu import HALVES, attention_fits, tried
from focus_runtime.mask.allowed_pairs import allowed_to_last_queries
from focus_runtime.mask.rule import PairRule

MAX_QUERIES = 16  # more queries see most keys between them, whatever their groups
GATHER_FROM = 1280  # keys; below this reading all of them under the mask is faster, benchmarks/decode_cpu.py
GATHER_FROM_ACCELERATOR = 32768  # a guess, not measured: a gathered step there is bound by its kernel launches
GATHER_BELOW = 0.5  # share of keys seen; reading scattered rows costs about twice reading all in order
DECODING = "decode attention"  # name of the Triton kernels in warnings
CHUNK_BYTES = 3 * 2**19  # of gathered rows at once on the CPU, so that they are still in its cache when used


def decode_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
    *,
    gather_from: int | None = None,
    gather_below: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention over gathered keys; meant for Tq up to `MAX_QUERIES`.

    Args:
        gather_from, gather_below: with fewer keys, or when a batch row's queries see more than this share of them
            between them, all keys are read under a mask instead; None for what was measured to be faster.
    """
    single = query.shape[2] == 1 and key_padding is None and membership.stride(-1) == 1
    if single and attention_fits(DECODING, query, key, value) and not needs_gradient(query, key, value):
        from focus_runtime.attention.cuda.decoding import decode_on_gpu  # needs Triton

        result = tried(DECODING, query, lambda: decode_on_gpu(query, key, value, membership, rule, scoring))
        if result is not None:
            out, parts = result
            return out, parts[-out.shape[0] * out.shape[1] :].view(out.shape[:3])
    allowed_BQT = allowed_to_last_queries(membership, query.shape[2], rule, key_padding)
    on_cpu = key.device.type == "cpu"
    slow = on_cpu and key.dtype in HALVES  # torch's CPU flash kernel is ten times slower in these
    if gather_from is None:
        gather_from = (0 if slow else GATHER_FROM) if on_cpu else GATHER_FROM_ACCELERATOR
    if gather_below is None:
        gather_below = 1.0 if slow else GATHER_BELOW
    if key.shape[2] < gather_from:
        return _under_mask(query, key, value, allowed_BQT, scoring)
    results = []
    for b in range(query.shape[0]):
        rows_n = allowed_BQT[b].any(dim=0).nonzero()[:, 0]
        one = slice(b, b + 1)
        if rows_n.numel() <= gather_below * key.shape[2]:
            out, lse = _attend_rows(query[b], key[b], value[b], rows_n, allowed_BQT[b][:, rows_n], scoring)
            results.append((out[None], lse[None]))
        else:
            results.append(_under_mask(query[one], key[one], value[one], allowed_BQT[one], scoring))
    outs, lses = zip(*results, strict=True)
    return torch.cat(outs), torch.cat(lses)


def _under_mask(
    query: Tensor, key: Tensor, value: Tensor, allowed_BQT: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    if query.device.type == "cpu" and scoring.softcap is None:
        return masked_flash(query, key, value, allowed_BQT[:, None], scoring.scale)
    return attend_allowed(query, key, value, allowed_BQT[:, None], scoring)


def _attend_rows(
    q_HQD: Tensor, k_GTD: Tensor, v_GTD: Tensor, rows_n: Tensor, allowed_Qn: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    """Attention of one text's queries over the keys that any of them sees, in fp32 at least."""
    heads, length_q, dim = q_HQD.shape
    kind = torch.promote_types(q_HQD.dtype, torch.float32)
    if rows_n.numel() == 0:
        return torch.zeros_like(q_HQD), q_HQD.new_full((heads, length_q), float("-inf"), dtype=kind)
    q_GrD = q_HQD.reshape(k_GTD.shape[0], -1, dim).to(kind) * scoring.scale
    prefetch = k_GTD.device.type == "cpu" and not needs_gradient(k_GTD, v_GTD)
    gather = _gather_prefetched if prefetch else lambda x_GTD, rows_n: x_GTD.index_select(1, rows_n)
    row_bytes = k_GTD.shape[0] * k_GTD.shape[2] * k_GTD.element_size()
    chunks = rows_n.split(max(64, CHUNK_BYTES // row_bytes) if prefetch else len(rows_n))
    scores_Grn = torch.cat([q_GrD @ gather(k_GTD, chunk).to(kind).transpose(1, 2) for chunk in chunks], dim=-1)
    hidden_rn = ~allowed_Qn.repeat(q_GrD.shape[1] // length_q, 1)
    scores_Grn = scoring.capped(scores_Grn).masked_fill(hidden_rn, float("-inf"))
    lse_Gr = torch.logsumexp(scores_Grn, dim=-1)
    weights_Grn = torch.exp(scores_Grn - lse_Gr.masked_fill(lse_Gr == float("-inf"), 0.0)[..., None])
    out_GrD = torch.zeros_like(q_GrD)
    for chunk, weight in zip(chunks, weights_Grn.split([len(c) for c in chunks], dim=-1), strict=True):
        out_GrD = out_GrD + weight @ gather(v_GTD, chunk).to(kind)
    return out_GrD.to(q_HQD.dtype).reshape(q_HQD.shape), lse_Gr.view(heads, length_q)


def _gather_prefetched(x_GTD: Tensor, rows_n: Tensor) -> Tensor:
    """Rows of tokens, (G, n, D), by bags of one row each: that kernel prefetches, where scattered rows cost latency."""
    heads, length, dim = x_GTD.shape
    stride_h, stride_t, stride_d = x_GTD.stride()
    if stride_d != 1 or stride_h % dim or stride_t % dim:
        x_GTD = x_GTD.contiguous()
        stride_h, stride_t, _ = x_GTD.stride()
    stride_h, stride_t = stride_h // dim, stride_t // dim
    # the same numbers as a table of N rows, without copying where strides allow
    table_ND = x_GTD.as_strided(((heads - 1) * stride_h + (length - 1) * stride_t + 1, dim), (dim, 1))
    rows_Gn = torch.arange(heads)[:, None] * stride_h + rows_n * stride_t
    return torch.embedding_bag(table_ND, rows_Gn.view(-1), torch.arange(rows_Gn.numel()))[0].view(heads, -1, dim)
