"""The short way of a whole text on a GPU, and heads of unequal settings in few calls of its kernels.

A call costs a GPU's host more than the GPU where texts are short, and gathering heads copies queries, keys and values.
The kernels therefore read which heads to compute, and the window of each query head: one call for each top-k, not for
each setting. A head with full attention is one whose window no text is longer than; in a long text it is computed
apart, by the kernel made for it.

Shape suffixes: B batch, H query heads, Q queries, T tokens, D head size, S distinct top-k.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.decomposed import GROUPED, grouped_fits, triton_kernels
from focus_runtime.attention.reference import needs_gradient
from focus_runtime.composition.factors import acting_factors, head_factors, kernels_read, with_factors
from focus_runtime.composition.heads import Plan, memberships
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.gpu import attention_fits, tried
from focus_runtime.mask.allowed_pairs import membership_extent
from focus_runtime.mask.rule import Extent
from focus_runtime.routing.router import Assignment

FULL_APART_FROM = 16384  # tokens; below, another launch costs more than the near kernel, which masks every tile (H100)


def text_on_gpu(layer: FocusLayer, call: Call) -> Tensor | None:
    """Focus of a whole text, (B, T, H, D), by groups that nobody changed; None, and no change, where no kernel fits.

    The shorter way saves 81 of 229 us of Python a layer in a short text, and 204 of 449 in one of 8,192 tokens, whose
    layers take 1,000 to 1,400 (LOG.md, 2026-11-27).
    """
    current, length = layer.current_pass, call.query.shape[2]
    assignment, history = current.assignment, current.history
    if not length == call.key.shape[2] == call.total or call.sinks is not None:
        return None
    if layer.sliding is not None and length > layer.sliding:
        return None
    if assignment is None or not assignment.exact or not fits(GROUPED, layer.owner.backend, call):
        return None  # where groups are not exact, bits from K on may be set
    if history is not None and history.length:  # the second call of a module, as in differential attention
        return None
    plan = layer.plan(call)
    if length <= plan.seen_whole:  # torch's kernel is faster
        return None
    groups_SBT = memberships(assignment, plan.heads.top_ks, plan.config.top_k)
    with layer.owner.seconds("attention"):
        if triton_kernels()[1].pairwise_pays(call.query, plan.config.num_groups, max(plan.heads.top_ks)):
            out_BTHD = _every_pair(layer, plan, call, groups_SBT)
        elif length < FULL_APART_FROM:
            extents = [extent_of(assignment, top_k, plan.config.num_groups) for top_k in plan.heads.top_ks]
            out_BTHD = _by_groups(layer, plan, call, groups_SBT, extents)
        else:
            out_BTHD = None
    if out_BTHD is None:
        return None
    if history is not None and plan.config.assignment != "sinkhorn":  # whose groups nothing will continue from
        history.append(groups_SBT, None, layer.owner.writer)
    current.counts, current.backend = plan.counts, "decomposed"
    return out_BTHD


def _every_pair(layer: FocusLayer, plan: Plan, call: Call, groups_SBT: Tensor) -> Tensor | None:
    """A short text, (B, T, H, D), by the kernel that tests all pairs."""
    factors_H, factors = acting_factors(layer), None
    if factors_H is not None and call.total > plan.reach.least:
        if not kernels_read(factors_H):
            return None
        factors = head_factors(factors_H, plan.reach)
    groups_SBT = groups_SBT if groups_SBT.stride(-1) == 1 else groups_SBT.contiguous()

    def run() -> Tensor:
        out_BTHD: Tensor = triton_kernels()[1].pairwise_attention(
            *call.tensors,
            groups_SBT,
            plan.rule,
            call.scoring,
            num_groups=plan.config.num_groups,
            heads=None if plan.heads.uniform else plan.on_gpu.pairs,
            factors=factors,
            stage=layer.owner.seconds,
        )
        return out_BTHD

    return tried(GROUPED, call.query, run)


def _by_groups(
    layer: FocusLayer, plan: Plan, call: Call, groups_SBT: Tensor, extents: Sequence[Extent | None]
) -> Tensor | None:
    """A longer text, (B, T, H, D), by the kernels that sort tokens by group."""
    call = with_factors(layer, call)
    if needs_gradient(call.query):  # of factors that are learned; these kernels have no backward
        return None
    if plan.heads.uniform and not grouped_fits(*call.tensors, plan.rule.near(call.total - 1), call.scoring):
        return None
    found = text_by_head(plan, call, groups_SBT, extents, layer.owner.seconds)
    return None if found is None else found[0]


def fits(what: str, backend: str, call: Call) -> bool:
    """Whether kernels take the call with all its heads: `GROUPED` for a whole text, `DECODING` for its newest token."""
    return (
        call.padding is None
        and call.scoring.scale > 0
        and backend in ("auto", "decomposed" if what == GROUPED else "decode")
        and attention_fits(what, *call.tensors)
        and not needs_gradient(*call.tensors)
    )


def extent_of(assignment: Assignment | None, top_k: int, num_groups: int) -> Extent | None:
    """What is known of a text's groups without looking at them; None where something else than routers decided."""
    if assignment is None or not assignment.exact:
        return None
    if top_k == 0:
        return Extent(num_groups, 0, uniform=True)
    beyond = assignment.everywhere is not None  # some tokens may be in all groups
    return Extent(num_groups, top_k, uniform=not beyond, beyond=beyond)


def step_by_head(plan: Plan, call: Call, groups_SBT: Tensor) -> Tensor | None:
    """The newest token's output, (B, 1, H, D), of a call that `fits`; None where the kernel failed."""
    from focus_runtime.attention.cuda.decoding import decode_on_gpu  # needs Triton

    groups_SBT = groups_SBT if groups_SBT.stride(-1) == 1 else groups_SBT.contiguous()
    step = None if plan.heads.uniform else plan.on_gpu.step
    result = tried(
        DECODING, call.query, lambda: decode_on_gpu(*call.tensors, groups_SBT, plan.rule, call.scoring, step)
    )
    return None if result is None else result[0].transpose(1, 2)


def text_by_head(
    plan: Plan, call: Call, groups_SBT: Tensor, known: Sequence[Extent | None], clock: StageClock
) -> tuple[Tensor, bool] | None:
    """A whole text's output, (B, T, H, D), and whether it has full heads; None where a kernel failed.

    Memberships, and what is known of them, are given for each distinct top-k.
    """
    extents = [own or membership_extent(groups_BT) for own, groups_BT in zip(known, groups_SBT, strict=True)]
    kernels, apart, own = triton_kernels()[0], call.query.shape[2] >= FULL_APART_FROM, plan.on_gpu

    def run() -> Tensor:
        inputs = (plan.rule, call.scoring)
        if plan.heads.uniform:
            found = kernels.grouped_attention(*call.tensors, groups_SBT[0], *inputs, extent=extents[0], stage=clock)
            return found[0].transpose(1, 2)
        results, parts = kernels.new_results(call.query), own.focused if apart else own.parts
        together = len(parts) > 1  # near pairs have nothing to do with groups: of all parts they are one launch
        works = [(place, heads, extents[place]) for place, heads in parts if not together or extents[place].top_k > 0]
        if together:
            no_groups = Extent(extents[0].num_groups, 0, uniform=True)
            works.insert(0, (0, own.every_focused if apart else own.every, no_groups))
        for number, (place, heads, extent) in enumerate(works):
            kernels.grouped_attention(
                *call.tensors,
                groups_SBT[place],
                *inputs,
                extent=extent,
                stage=clock,
                heads=heads,
                results=results,
                near_known=together and number > 0,
            )
        return results[0]

    out_BTHD = tried(GROUPED, call.query, run)
    return None if out_BTHD is None else (out_BTHD, not apart)
