"""One decode step of a layer on a GPU: what the new token's groups are and what it sees, in three kernels.

A GPU waits for the host in a decode step. As on the CPU (step.py), the hook that sees the hidden states only notes
them, and the attention call does the rest: one kernel decides the groups for every top-k, looks for a text sink, writes
both behind those of earlier tokens, and multiplies the queries by their heads' factors; two compute attention.

Shape suffixes: B batch, H query heads, D head size, S settings.
"""

from __future__ import annotations

from torch import Tensor

from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.scoring import Scoring
from focus_runtime.composition.by_head import settings_of
from focus_runtime.composition.heads import MOST_SETS, LayerHeads, counts_of
from focus_runtime.composition.state import FocusLayer, LateDecided
from focus_runtime.composition.text_sinks import no_sink
from focus_runtime.gpu.usable import HALVES, attention_fits, takes_hidden, tried
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
    current = layer.current_pass
    history = current.history
    assert history is not None, "see `defers`"
    counts = counts_of(query, key)
    heads = layer.heads(counts)
    seen, place = history.seen, history.length
    if (
        query.shape[:3:2] != (1, 1)
        or not key.shape[2] >= seen == place + 1
        or len(heads.top_ks) > MOST_SETS
        or scoring.scale <= 0
        or not attention_fits(DECODING, query, key, value)
    ):
        return None
    if key.shape[2] > seen:
        key, value = key[:, :, :seen], value[:, :, :seen]
    try:
        with layer.owner.seconds("routing"):
            scaled = tried(DECIDING, hidden, lambda: _decide(layer, heads, hidden, query, key, place))
        with layer.owner.seconds("attention"):
            result = (
                None
                if scaled is None
                else tried(DECODING, query, lambda: _attend(layer, heads, scaled, key, value, scoring))
            )
    except BaseException:
        history.length = place  # the groups of the new token may not be written
        raise
    if result is None:
        history.length = place
        return None
    current.counts, current.backend = counts, "decode"
    return result


def _decide(layer: FocusLayer, heads: LayerHeads, hidden: Tensor, query: Tensor, key: Tensor, place: int) -> Tensor:
    """The queries with their heads' factors; the token's groups are noted and stored."""
    from focus_runtime.attention.cuda.deciding import Factors, Sinks, decide_on_gpu  # needs Triton

    owner, current, router, config = layer.owner, layer.current_pass, layer.router, layer.owner.config
    history, device = current.history, query.device
    assert history is not None, "see `defers`"
    assert router is not None, "see `defers`"
    sinks = factors = None
    if config.text_sinks is not None:
        looks = layer.index >= config.text_sinks_from and place >= config.num_sinks
        first = history.first_input if looks else None
        sinks = Sinks(owner.found_sinks.in_step(layer.index, device), first, config.text_sinks)
    if router.logit_factors is not None and config.logit_factors:
        reach = layer.reach(heads, counts_of(query, key), device)
        if place + 1 > reach.least:
            factors = Factors(router.logit_factors, reach.acts, reach.tokens, place + 1)
    probabilities_K, found, scaled = decide_on_gpu(
        hidden,
        router.scoring_weights(),
        router.potential,
        history.extend(1),
        place,
        heads.top_ks,
        query,
        sinks=sinks,
        factors=factors,
    )
    if sinks is not None:
        owner.found_sinks.by_layer[layer.index] = no_sink(device) if found is None else found
    current.decided = LateDecided(probabilities_K, config.top_k, found, router.potential)
    return scaled


def _attend(
    layer: FocusLayer, heads: LayerHeads, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring
) -> Tensor:
    """Focus of the new token, (1, 1, Hq, D), its groups stored."""
    from focus_runtime.attention.cuda.decoding import StepHeads, decode_on_gpu  # needs Triton

    history, num_sinks = layer.current_pass.history, layer.owner.config.num_sinks
    assert history is not None, "see `defers`"
    if heads.uniform:
        rule, settings = PairRule(heads.groups[0].setting.window, num_sinks), None
    else:
        rule = PairRule(0, num_sinks)
        settings = StepHeads(*settings_of(heads, counts_of(query, key), query.device))
    groups_SBT = history.membership
    return decode_on_gpu(query, key, value, groups_SBT, rule, scoring, settings)[0].transpose(1, 2)
