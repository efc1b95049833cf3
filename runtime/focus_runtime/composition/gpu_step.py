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
    seen = history.seen
    if (
        query.shape[:3:2] != (1, 1)
        or not key.shape[2] >= seen == history.length + 1
        or len(heads.top_ks) > MOST_SETS
        or scoring.scale <= 0
        or not attention_fits(DECODING, query, key, value)
    ):
        return None
    if key.shape[2] > seen:
        key, value = key[:, :, :seen], value[:, :, :seen]
    result = tried(DECODING, query, lambda: _step(layer, heads, hidden, query, key, value, scoring))
    if result is None:
        history.length = seen - 1
        return None
    current.counts, current.backend = counts, "decode"
    return result


def _step(
    layer: FocusLayer,
    heads: LayerHeads,
    hidden: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scoring: Scoring,
) -> Tensor:
    from focus_runtime.attention.cuda.deciding import Factors, Sinks, decide_on_gpu  # needs Triton
    from focus_runtime.attention.cuda.decoding import StepHeads, decode_on_gpu

    owner, current, router, config = layer.owner, layer.current_pass, layer.router, layer.owner.config
    history, counts, device = current.history, counts_of(query, key), query.device
    assert history is not None, "see `defers`"
    assert router is not None, "see `defers`"
    place = history.length
    sinks = factors = None
    if config.text_sinks is not None:
        looks = layer.index >= config.text_sinks_from and place >= config.num_sinks
        first = history.first_input if looks else None
        sinks = Sinks(owner.found_sinks.in_step(layer.index, device), first, config.text_sinks)
    if router.logit_factors is not None and config.logit_factors:
        reach = layer.reach(heads, counts, device)
        if place + 1 > reach.least:
            factors = Factors(router.logit_factors, reach.acts, reach.tokens, place + 1)
    with owner.seconds("routing"):
        groups_SBT = history.extend(1)
        probabilities_K, found, query = decide_on_gpu(
            hidden,
            router.scoring_weights(),
            router.potential,
            groups_SBT,
            place,
            heads.top_ks,
            query,
            sinks=sinks,
            factors=factors,
        )
    if sinks is not None:
        owner.found_sinks.by_layer[layer.index] = no_sink(device) if found is None else found
    current.decided = LateDecided(probabilities_K, config.top_k, found, router.potential)
    with owner.seconds("attention"):
        if heads.uniform:
            rule, settings = PairRule(heads.groups[0].setting.window, config.num_sinks), None
        else:
            rule, settings = PairRule(0, config.num_sinks), StepHeads(*settings_of(heads, counts, device))
        out_BHTD, _ = decode_on_gpu(query, key, value, groups_SBT, rule, scoring, settings)
    return out_BHTD.transpose(1, 2)
