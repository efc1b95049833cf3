"""One decode step of a layer on a GPU: what the new token's groups are and what it sees, in three kernels.

A GPU waits for the host in a decode step. As on the CPU (step.py), the hook that sees the hidden states only notes
them, and the attention call does the rest: one kernel decides the groups for every top-k, looks for a text sink, writes
both behind those of earlier tokens, and multiplies the queries by their heads' factors; two compute attention.

Shape suffixes: B batch, H query heads, D head size, S settings.
"""

from __future__ import annotations

from torch import Tensor

from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.by_head import settings_of
from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.factors import head_factors
from focus_runtime.composition.gpu_plan import StepPlan
from focus_runtime.composition.heads import MOST_SETS, counts_of
from focus_runtime.composition.state import FocusLayer, LateDecided
from focus_runtime.composition.text_sinks import NO_SINK, no_sink
from focus_runtime.gpu import HALVES, attention_fits, takes_hidden, tried
from focus_runtime.mask.rule import PairRule

BACKENDS = ("auto", "decode")
DECIDING = "deciding groups"  # name of the Triton kernel in warnings


def takes(hidden: Tensor, layer: FocusLayer) -> bool:
    """Whether kernels may decide the groups of a new token with this input.

    Args:
        hidden: (1, 1, E).
        layer: of the call.
    """
    return layer.owner.backend in BACKENDS and hidden.dtype in HALVES and takes_hidden(hidden)


def _plan_of(layer: FocusLayer, query: Tensor, key: Tensor) -> StepPlan:
    """Kept from one step to the next: to look everything up takes longer than to compute the step."""
    config, plan = layer.owner.config, layer.gpu_plan
    if (
        plan is None
        or plan.config is not config
        or plan.shape != query.shape
        or plan.kv_heads != key.shape[1]
        or plan.device != query.device
    ):
        layer.gpu_plan = plan = _planned(layer, query, key)
    return plan


def _planned(layer: FocusLayer, query: Tensor, key: Tensor) -> StepPlan:
    from focus_runtime.attention.cuda.decoding import StepHeads  # needs Triton

    config, router, counts, device = layer.owner.config, layer.router, counts_of(query, key), query.device
    assert router is not None, "see `defers`"
    heads, kind = layer.heads(counts), (config, query.shape, key.shape[1], device, counts)
    if query.shape[:3:2] != (1, 1) or len(heads.top_ks) > MOST_SETS:
        return StepPlan(*kind, None, PairRule(0, 0), None, None)
    window = heads.groups[0].setting.window if heads.uniform else 0
    settings = None if heads.uniform else StepHeads(*settings_of(heads, counts, device))
    reach = layer.reach(heads, counts, device) if config.logit_factors else None
    return StepPlan(*kind, heads, PairRule.of(config, window), settings, reach)


def step_on_gpu(
    layer: FocusLayer, hidden: Tensor, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring
) -> Tensor | None:
    """Groups of the one new token and Focus for it.

    Args:
        layer: of the call, for whose hidden states `takes` returned True.
        hidden: (1, 1, E) input of the layer.
        query: (1, Hq, 1, D); key, value: (1, Hkv, T, D), the cache included; a static one has room for more tokens.
        scoring: scale and softcap.

    Returns:
        (1, 1, Hq, D), or None where the kernels do not take the call or fail; nothing is changed then.
    """
    current, plan = layer.current_pass, _plan_of(layer, query, key)
    history = current.history
    assert history is not None, "see `defers`"
    seen, place = history.seen, history.length
    if (
        plan.heads is None
        or not key.shape[2] >= seen == place + 1
        or scoring.scale <= 0
        or not attention_fits(DECODING, query, key, value)
    ):
        return None
    if key.shape[2] > seen:
        key, value = key[:, :, :seen], value[:, :, :seen]
    clock = layer.owner.seconds
    try:
        with clock("routing"):
            scaled = tried(DECIDING, hidden, lambda: _decide(layer, plan, hidden, query, place))
        with clock("attention"):
            result = (
                None
                if scaled is None
                else tried(DECODING, query, lambda: _attend(plan, history, scaled, key, value, scoring))
            )
    except BaseException:
        history.length = place  # the groups of the new token may not be written
        raise
    if result is None:
        history.length = place
        return None
    current.counts, current.backend = plan.counts, "decode"
    return result


def _decide(layer: FocusLayer, plan: StepPlan, hidden: Tensor, query: Tensor, place: int) -> Tensor:
    """The queries with their heads' factors; the token's groups are noted and stored."""
    from focus_runtime.attention.cuda.decoding import Sinks, decide_on_gpu  # needs Triton

    current, router, config = layer.current_pass, layer.router, plan.config
    history, all_sinks = current.history, layer.owner.found_sinks
    assert history is not None, "see `defers`"
    assert router is not None, "see `defers`"
    assert plan.heads is not None, "see `step_on_gpu`"
    sinks = factors = None
    if config.text_sinks is not None:
        looks = layer.index >= config.text_sinks_from and place >= config.num_sinks
        first = history.first_input if looks else None
        sinks = Sinks(all_sinks.known_before(layer.index, NO_SINK.shape, plan.device), first, config.text_sinks)
    potential, factors_H = router.potential, router.logit_factors
    if plan.reach is not None and factors_H is not None and place + 1 > plan.reach.least:
        factors = head_factors(factors_H, plan.reach)
    probabilities_K, found, scaled = decide_on_gpu(
        hidden,
        router.scoring_weights(),
        potential,
        history.extend(1),
        place,
        plan.heads.top_ks,
        query,
        sinks=sinks,
        factors=factors,
    )
    if sinks is not None:
        all_sinks.by_layer[layer.index] = no_sink(plan.device) if found is None else found
    current.decided = LateDecided(probabilities_K, config.top_k, found, potential)
    return scaled


def _attend(
    plan: StepPlan, history: GroupHistory, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring
) -> Tensor:
    """Focus of the new token, (1, 1, Hq, D), its groups stored."""
    from focus_runtime.attention.cuda.decoding import decoded_on_gpu  # needs Triton

    groups_SBT = history.membership
    return decoded_on_gpu(query, key, value, groups_SBT, plan.rule, scoring, plan.settings)[0].transpose(1, 2)
