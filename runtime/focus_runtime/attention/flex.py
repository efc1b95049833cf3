"""Focus through torch's FlexAttention over tokens sorted by signature: any k, sinks, padding, softcap, one call.

The signature of a token is its membership bit set. Sorted by it, tokens that see each other lie together, and a block
of queries needs few blocks of keys. Which blocks, is decided from ranges per block (bit-or and bit-and of the
signatures, least and greatest positions), never from a T x T tensor: (T / 128)^2 flags are the largest thing built.

Two encodings keep numbers out of the compiled mask, so that it never recompiles for a new window or sink count: sinks
are one more group, to which every query and only the sink keys belong, and each query carries its first near position.

Shape suffixes: B batch, Q queries (Tq), T keys (Tk), N tokens padded to whole blocks, R and C row and column blocks.

What torch gives where (2.13): on CUDA one Triton kernel with logsumexp and gradients. On the CPU a C++ kernel without
either, compiled anew for every length; it stands alone only because the whole mask is one call. Uncompiled flex has a
logsumexp but writes all scores out, so it serves short inputs only.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo.config
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from focus_runtime.attention.reference import Scoring, needs_gradient
from focus_runtime.errors import InputError, first_line
from focus_runtime.mask.allowed_pairs import token_positions
from focus_runtime.mask.rule import Extent, PairRule

BLOCK = 128  # tokens per block side, FlexAttention's default
NEVER = 1 << 30  # a position later than every query; doubled it still fits int32
EAGER_LIMIT = 4096  # tokens up to which uncompiled flex may write out all scores on the CPU
# With S signatures a sorted block of 128 tokens spans 128 S positions, so its window meets blocks of every signature.
# By counting blocks (random groups, w = 128), sorting loses below 8 blocks a signature.
SORT_TOKENS_PER_SIGNATURE = 8 * BLOCK
FLAGS_AT_ONCE = 1 << 24  # block pairs looked at together, which bounds temporary memory
_CAN_SKIP_Q_BLOCKS = "compute_q_blocks" in inspect.signature(BlockMask.from_kv_blocks).parameters


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """Tokens in the order the kernel sees them, padded to whole blocks.

    Attributes:
        index_q: (B, Nq) int64, which query stands where; index_k: (B, Nk) int64 for keys. Padding repeats token 0.
        signature_q, signature_k: (B, N) int32 or int64, with the sink bit; 0 marks padding.
        position_q, position_k: (B, N) int32; -NEVER for padding queries and NEVER for keys that nobody may see.
        near_from: (B, Nq) int32, the first position that is near each query.
    """

    index_q: Tensor
    index_k: Tensor
    signature_q: Tensor
    signature_k: Tensor
    position_q: Tensor
    position_k: Tensor
    near_from: Tensor


def _padded(x: Tensor, value: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, -x.shape[1] % BLOCK), value=value)


def order_tokens(
    membership: Tensor,
    length_q: int,
    rule: PairRule,
    key_padding: Tensor | None = None,
    *,
    sort: bool,
    extent: Extent | None = None,
) -> TokenOrder:
    """Sort keys, and the last Tq positions as queries, by signature and then by position; or leave them in order."""
    length_k = membership.shape[1]
    first = length_k - length_q
    position_BT = token_positions(membership, key_padding).to(torch.int32)
    largest = int(membership.max()).bit_length() if extent is None else extent.num_groups
    narrow = largest < 32  # 32-bit tests are cheaper in the kernel, and the sink needs a bit
    sink_bit = -(1 << 31) if narrow else -(1 << 63)
    plain_BT = membership.to(torch.int32 if narrow else torch.int64)
    signature_BT = torch.where(position_BT < rule.num_sinks, plain_BT | sink_bit, plain_BT)
    seen_from_BT = position_BT if key_padding is None else position_BT.masked_fill(~key_padding, NEVER)
    signature_BQ, position_BQ = plain_BT[:, first:], position_BT[:, first:]
    if sort:
        hidden = torch.iinfo(plain_BT.dtype).max
        sort_key_BT = plain_BT if key_padding is None else plain_BT.masked_fill(~key_padding, hidden)
        index_BT = torch.argsort(sort_key_BT, dim=1, stable=True)
        index_BQ = torch.argsort(signature_BQ, dim=1, stable=True)
        signature_BQ, position_BQ = signature_BQ.gather(1, index_BQ), position_BQ.gather(1, index_BQ)
        signature_BT, seen_from_BT = signature_BT.gather(1, index_BT), seen_from_BT.gather(1, index_BT)
    else:
        index_BT = torch.arange(length_k, device=membership.device).expand_as(membership)
        index_BQ = index_BT[:, :length_q]
    near_BQ = rule.near(position_BQ.long()).clamp(max=length_k).to(torch.int32)
    return TokenOrder(
        index_q=_padded(index_BQ, 0),
        index_k=_padded(index_BT, 0),
        signature_q=_padded(signature_BQ | sink_bit, 0),
        signature_k=_padded(signature_BT, 0),
        position_q=_padded(position_BQ, -NEVER),
        position_k=_padded(seen_from_BT, NEVER),
        near_from=_padded(position_BQ - near_BQ, NEVER),
    )


def _fold(x: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Reduce (B, N * BLOCK) to (B, N) by halving: torch has no reduction by bit-or."""
    x = x.view(x.shape[0], -1, BLOCK)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = operation(x[..., :half], x[..., half:])
    return x[..., 0]


def _compact(flags_BRC: Tensor) -> tuple[Tensor, Tensor]:
    """Columns set in each row, first ones first: (B, R, C) bool -> counts (B, R) int32, columns (B, R, C) int32."""
    columns = flags_BRC.shape[-1]
    slot_BRC = torch.where(flags_BRC, flags_BRC.cumsum(-1) - 1, columns)
    listed = torch.zeros(*flags_BRC.shape[:-1], columns + 1, dtype=torch.int32, device=flags_BRC.device)
    number_BRC = torch.arange(columns, dtype=torch.int32, device=flags_BRC.device).expand_as(slot_BRC)
    listed.scatter_(-1, slot_BRC, number_BRC)
    return flags_BRC.sum(-1, dtype=torch.int32), listed[..., :columns]


def block_lists(order: TokenOrder) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Key blocks that each query block must look at.

    A block pair is full when every pair in it is allowed, partial when some may be (the mask then decides), and
    otherwise skipped. Padding queries are ignored: their output is thrown away.

    Returns:
        partial counts (B, 1, R), partial columns (B, 1, R, C), full counts, full columns; int32, in blocks.
    """
    least, most = torch.minimum, torch.maximum
    padding_BN = order.position_q == -NEVER
    any_BR = _fold(order.signature_q, torch.bitwise_or)
    all_BR = _fold(order.signature_q.masked_fill(padding_BN, -1), torch.bitwise_and)
    any_BC, all_BC = _fold(order.signature_k, torch.bitwise_or), _fold(order.signature_k, torch.bitwise_and)
    last_BR, first_BR = _fold(order.position_q, most), _fold(order.position_q.masked_fill(padding_BN, NEVER), least)
    near_first_BR = _fold(order.near_from, least)
    near_last_BR = _fold(order.near_from.masked_fill(padding_BN, -NEVER), most)
    first_BC, last_BC = _fold(order.position_k, least), _fold(order.position_k, most)

    of_rows = [x_BR[..., None] for x_BR in (any_BR, all_BR, first_BR, last_BR, near_first_BR, near_last_BR)]
    any_BC, all_BC, first_BC, last_BC = (x_BC[:, None] for x_BC in (any_BC, all_BC, first_BC, last_BC))
    parts = []
    for some in zip(*(x_BR1.split(max(1, FLAGS_AT_ONCE // any_BC.numel()), dim=1) for x_BR1 in of_rows), strict=True):
        any_Br1, all_Br1, first_Br1, last_Br1, near_first_Br1, near_last_Br1 = some
        seen_BrC = ((any_Br1 & any_BC) != 0) | (last_BC >= near_first_Br1)
        some_BrC = seen_BrC & (last_Br1 >= first_BC)
        all_seen_BrC = ((all_Br1 & all_BC) != 0) | (first_BC >= near_last_Br1)
        full_BrC = all_seen_BrC & (first_Br1 >= last_BC)
        parts.append((*_compact(some_BrC & ~full_BrC), *_compact(full_BrC)))
    counts, columns, full_counts, full_columns = (torch.cat(x, dim=1)[:, None] for x in zip(*parts, strict=True))
    return counts, columns, full_counts, full_columns


def focus_block_mask(order: TokenOrder, *, gradients: bool = False) -> BlockMask:
    """The Focus mask for `flex_attention`, in the order of `order`; `gradients` adds what the backward pass needs."""
    signature_q, signature_k = order.signature_q, order.signature_k
    position_q, position_k, near_from = order.position_q, order.position_k, order.near_from

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        shared = (signature_q[b, i] & signature_k[b, j]) != 0
        return (position_q[b, i] >= position_k[b, j]) & (shared | (position_k[b, j] >= near_from[b, i]))

    skipped: dict[str, Any] = {"compute_q_blocks": False} if not gradients and _CAN_SKIP_Q_BLOCKS else {}
    return BlockMask.from_kv_blocks(
        *block_lists(order),
        BLOCK_SIZE=BLOCK,
        mask_mod=allowed,
        seq_lengths=(signature_q.shape[1], signature_k.shape[1]),
        **skipped,
    )


@functools.cache
def _compiled(device: str) -> Callable[..., Any]:
    # Dynamic shapes do not build on the CPU (torch 2.13). fullgraph: an error is better than T x T scores in silence.
    return torch.compile(flex_attention, fullgraph=True, dynamic=False if device == "cpu" else None)


def _call_compiled(device: str, *inputs: Tensor, **arguments: Any) -> Any:
    # scale and softcap are constants of a kernel, not symbols; several models in one process need more than 8 variants.
    with torch._dynamo.config.patch(specialize_float=True, recompile_limit=64):
        try:
            return _compiled(device)(*inputs, **arguments)
        except RuntimeError as error:
            if "InvalidCxxCompiler" not in str(error) and "TritonMissing" not in str(error):
                raise
            raise InputError(
                "backend 'flex' has to be compiled and found no " + ("C++ compiler" if device == "cpu" else "Triton"),
                expected="g++ or clang++ on the CPU, triton on CUDA",
                fix='install it, or use backend="auto"',
            ) from error


def _call_eager(*inputs: Tensor, **arguments: Any) -> Any:
    with warnings.catch_warnings(), torch._dynamo.config.patch(recompile_limit=64):
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        uncompiled: Callable[..., Any] = flex_attention
        return uncompiled(*inputs, **arguments)


@functools.cache
def works(device: torch.device, dtype: torch.dtype, head_size: int, *, gradients: bool = False) -> bool:
    """Whether compiled flex runs on a device (its tiles may not fit into a GPU); tried once, with a warning if not."""
    shape = (1, 1, 2 * BLOCK, head_size)
    zeros = torch.zeros(shape, device=device, dtype=dtype, requires_grad=gradients)
    membership = torch.ones(1, shape[2], device=device, dtype=torch.int64)
    extent = Extent(1, 1, uniform=True)
    try:
        with torch.set_grad_enabled(gradients):
            out, _ = flex_focus_attention(zeros, zeros, zeros, membership, PairRule(1), Scoring(1.0), extent=extent)
            if gradients:
                out.sum().backward()
    except Exception as error:  # the compiler raises exceptions of any type
        message = f"flex attention is left out for head size {head_size} in {dtype}: {first_line(error)}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return True


def sorting_pays(membership: Tensor, extent: Extent | None = None) -> bool:
    """True when sorting lets the kernel skip blocks; all signatures that an extent allows are taken to occur."""
    length = membership.shape[1]
    if length < 2 * SORT_TOKENS_PER_SIGNATURE:
        return False
    if extent is not None and extent.uniform and membership.device.type != "cpu":
        signatures = math.comb(extent.num_groups, extent.top_k)
    else:
        signatures = torch.unique(membership).numel()
    return length >= SORT_TOKENS_PER_SIGNATURE * signatures


def _check_fits(query: Tensor, key: Tensor, return_lse: bool, gradients: bool) -> bool:
    """True when the compiled kernel must run; InputError when neither kind of flex can."""
    if query.device.type != "cpu":
        if query.dtype == torch.float64:
            raise InputError(
                "backend 'flex' was given float64 on a GPU",
                expected="float32, float16 or bfloat16",
                fix='use backend="masked"',
            )
        return True
    if gradients:
        raise InputError(
            "backend 'flex' cannot give gradients on the CPU: torch has none for it",
            expected="tensors that need no gradient",
            fix='use torch.no_grad(), or backend="masked"',
        )
    if key.shape[2] <= EAGER_LIMIT:
        return False
    if return_lse or query.dtype == torch.float64:
        raise InputError(
            f"backend 'flex' was given {key.shape[2]} tokens on the CPU in {query.dtype}, "
            + ("with logsumexp" if return_lse else "without logsumexp"),
            expected=f"at most {EAGER_LIMIT} tokens, or fewer bits than float64 and no logsumexp",
            fix='use backend="auto"',
        )
    return True


def flex_focus_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
    *,
    return_lse: bool = True,
    sort: bool | None = None,
    extent: Extent | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Exact Focus attention for any k in one FlexAttention call.

    Args:
        return_lse: False lets the CPU run its compiled kernel beyond `EAGER_LIMIT` tokens.
        sort: order tokens by signature first; by default as `sorting_pays` says.

    Raises:
        InputError: no compiler; on the CPU gradients, or logsumexp or float64 above `EAGER_LIMIT` tokens.
    """
    gradients = needs_gradient(query, key, value)
    compiled = _check_fits(query, key, return_lse, gradients)
    length_q = query.shape[2]
    sort = sorting_pays(membership, extent) if sort is None else sort
    order = order_tokens(membership, length_q, rule, key_padding, sort=sort, extent=extent)
    batch = torch.arange(query.shape[0], device=query.device)[:, None]
    inputs = [
        x.transpose(1, 2)[batch, index].transpose(1, 2)
        for x, index in ((query, order.index_q), (key, order.index_k), (value, order.index_k))
    ]
    arguments: dict[str, Any] = {
        "block_mask": focus_block_mask(order, gradients=gradients),
        "scale": scoring.scale,
        "enable_gqa": query.shape[1] != key.shape[1],
        "score_mod": None if scoring.softcap is None else _softcap(scoring.softcap),
        "return_aux": AuxRequest(lse=return_lse),
    }
    call = functools.partial(_call_compiled, query.device.type) if compiled else _call_eager
    out, aux = call(*inputs, **arguments)
    back = torch.argsort(order.index_q[:, :length_q], dim=1) if sort else order.index_q[:, :length_q]
    out = out.transpose(1, 2)[batch, back].transpose(1, 2)
    return out, aux.lse.transpose(1, 2)[batch, back].transpose(1, 2) if return_lse else None


def _softcap(cap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return cap * torch.tanh(score / cap)

    return capped
