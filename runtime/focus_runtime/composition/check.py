"""What is checked at compose: that Focus can run in a model and in which layers, and that it computes what it should.

For the last, a few tokens go through the model and every attention call is made twice, by the family's own eager
function with transformers' own mask, and by Focus with every pair kept. They must agree to rounding.

Shape suffixes: B batch, Q queries, H query heads, D head size.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from focus_runtime.budget import HeadCounts
from focus_runtime.composition.documents import FOCUS_MASK, focus_mask
from focus_runtime.composition.layer import focus_forward
from focus_runtime.composition.state import STATE, FocusLayer
from focus_runtime.config import SLIDING_LAYERS, FocusConfig
from focus_runtime.errors import ConfigError, InputError, ModelError, first_line
from focus_runtime.failures import device_failure
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import OTHER_MODEL, attention_modules, hooked, layer_kind, shares_keys
from focus_runtime.routing.router import CentroidRouter

IMPLEMENTATION = "focus_checked"
TOKENS = 32
# Of the largest value of a token. Eager functions take the softmax in float32, that of a float64 model too.
ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
SKIP = "report this, or pass check=False to compose it all the same"

passed: WeakKeyDictionary[nn.Module, set[Any]] = WeakKeyDictionary()  # checks of each model that need not be repeated


def run_text(model: Any) -> None:
    """One pass over the tokens of the check, without a cache, in evaluation mode, whatever mode the model is in."""
    text = model.config.get_text_config()
    length = min(TOKENS, getattr(text, "max_position_embeddings", None) or TOKENS)
    ids = (torch.arange(length) * 37 + 11) % min(text.vocab_size, 997)
    try:
        with _evaluating(model), torch.no_grad(), _each_once(model):
            model(input_ids=ids[None].to(input_device(model)), use_cache=False)
    except InputError:
        raise
    except Exception as error:
        if device_failure(error) is not None:  # the caller of compose() words it
            raise
        raise ModelError(
            f"{type(model).__name__} cannot read {length} tokens of text: {first_line(error)}",
            expected="a causal language model that takes input_ids alone",
            fix="try model(input_ids) without Focus; check=False leaves this check out",
        ) from error


@contextmanager
def _each_once(model: nn.Module) -> Iterator[None]:
    """Refuse a model that runs a layer several times in a pass: its groups are kept once for each layer."""
    ran: Counter[int] = Counter()
    modules = attention_modules(model)
    with hooked(m.register_forward_pre_hook(lambda *_, index=i: ran.update([index])) for i, m in modules.items()):
        yield
    looped = [index for index, times in ran.items() if times > 1]
    if looped:
        raise ModelError(
            f"{type(model).__name__} runs layer {looped[0]} {ran[looped[0]]} times in a pass, and Focus keeps one set "
            "of groups a layer",
            fix=OTHER_MODEL,
        )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _both_masks(*args: Any, **kwargs: Any) -> Tensor | None:
    """The eager function's mask of pairs, with the mask for Focus as an attribute."""
    pairs: Tensor | None = eager_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
    if pairs is not None:  # as an encoder's may be
        setattr(pairs, FOCUS_MASK, focus_mask(*args, **kwargs))
    return pairs


def _checked_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The attention function of checked modules: their own, compared with Focus; returns their own."""
    layer: FocusLayer | None = module.__dict__.get(STATE)
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if layer is None or eager is None:
        return focus_forward(module, query, key, value, attention_mask, **kwargs)
    expected_BQHD = eager(module, query, key, value, attention_mask, **kwargs)[0]
    found_BQHD = focus_forward(module, query, key, value, attention_mask, **kwargs)[0]
    error_BQ = (found_BQHD - expected_BQHD).abs().amax(dim=(2, 3))
    allowed = ROUNDING.get(query.dtype, 5e-2) * float(value.abs().max())  # of which outputs are means
    wrong = (error_BQ > allowed) | error_BQ.isnan()
    if bool(wrong.any()):
        token = int(wrong[0].nonzero()[0]) if bool(wrong[0].any()) else 0
        raise ModelError(
            f"layer {layer.index} of {type(layer.owner.model).__name__} does not compute under Focus what it computes "
            f"without it: with every pair kept they differ by {float(error_BQ.max()):.2g} from token {token} on",
            expected="the same to rounding",
            fix=SKIP,
        )
    return expected_BQHD, None


AttentionInterface.register(IMPLEMENTATION, _checked_forward)
AttentionMaskInterface.register(IMPLEMENTATION, _both_masks)


def chosen_layers(
    model: nn.Module, routers: Mapping[int, CentroidRouter], sliding: Mapping[int, int | None], choice: str
) -> set[int]:
    """Layers that run Focus, by the sliding window of each layer; the others keep their own attention."""
    if choice not in SLIDING_LAYERS:
        raise InputError(f"sliding_layers is {choice!r}", expected=" or ".join(SLIDING_LAYERS))
    modules = attention_modules(model)
    able = {index for index in routers if index in modules and layer_kind(modules[index]) != "chunked_attention"}
    able -= {index for index in able if shares_keys(modules[index])}  # which may lack most tokens
    on_global = {index for index in able if sliding[index] is None}
    if not able:
        raise ModelError(
            f"every layer of {type(model).__name__} that these centroids cover attends within fixed chunks or reads "
            "another layer's keys, so Focus would run nowhere",
            fix=OTHER_MODEL,
        )
    if choice == "own" and not on_global:
        raise ModelError(
            f"every layer of {type(model).__name__} that these centroids cover has a sliding window, so with "
            "sliding_layers='own' Focus would run nowhere",
            fix="use sliding_layers='focus', which runs Focus inside each layer's own window",
        )
    return on_global if choice != "focus" and on_global else able


def check_decoder(model: Any) -> None:
    """Refuse models that are not decoders: with an encoder, or bidirectional by their configuration."""
    config, name = model.config, type(model).__name__
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} has an encoder and cross-attention, which Focus does not support", fix=OTHER_MODEL)
    kinds = {kind for kind in getattr(text, "layer_types", None) or [] if re.search("sparse|compressed|indexed", kind)}
    if kinds:
        raise ModelError(
            f"{name} has its own sparse attention ({', '.join(sorted(kinds))}), which Focus cannot follow",
            fix=OTHER_MODEL,
        )
    both_ways = getattr(text, "use_bidirectional_attention", None) in (True, "all")
    if both_ways or getattr(text, "is_causal", True) is False:
        raise ModelError(
            f"{name} lets tokens attend to later ones, by its configuration; Focus keeps attention causal",
            fix=OTHER_MODEL,
        )


def check_any_left(focused: set[int], config: FocusConfig, counts: HeadCounts) -> None:
    """Refuse a budget that gives every head of the focused layers full attention."""
    groups = [group for index in focused for group in config.head_groups(index, counts)]
    if groups and all(group.setting.full for group in groups):
        raise ConfigError(
            "the budget gives every head full attention, so Focus would run nowhere",
            expected="at least one head without it",
            fix="use the model without Focus, or another budget",
        )
