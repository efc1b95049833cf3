"""Which layers of a model run Focus, and that some do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from focus_runtime.budget import HeadCounts
from focus_runtime.config import SLIDING_LAYERS, FocusConfig
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL, attention_modules, chunk_of, shares_keys
from focus_runtime.routing.router import CentroidRouter

OWN_SPARSITY = ("sparse", "compressed", "indexed")  # in the names of kinds of layers


def chosen_layers(
    model: nn.Module, routers: Mapping[int, CentroidRouter], sliding: Mapping[int, int | None], choice: str
) -> set[int]:
    """Layers that run Focus; the others keep their own attention.

    Args:
        model: of the layers.
        routers: by layer number.
        sliding: window of each layer, None where it is global.
        choice: one of `SLIDING_LAYERS`.

    Raises:
        InputError: the choice is unknown. ModelError: Focus would run nowhere.
    """
    if choice not in SLIDING_LAYERS:
        raise InputError(f"sliding_layers is {choice!r}", expected=" or ".join(SLIDING_LAYERS))
    modules = attention_modules(model)
    able = {index for index in routers if index in modules and not keeps_own(modules[index])}
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


def keeps_own(module: nn.Module) -> bool:
    """Whether an attention module keeps its own attention whatever is asked: inside fixed chunks, which are short, and
    where it reads another layer's keys, for which the model may leave out most tokens."""
    return chunk_of(module) is not None or shares_keys(module)


def check_decoder(model: Any) -> None:
    """Refuse models that are not decoders.

    Args:
        model: a Hugging Face model.

    Raises:
        ModelError: it has an encoder, or is bidirectional by its configuration.
    """
    config, name = model.config, type(model).__name__
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} has an encoder and cross-attention, which Focus does not support", fix=OTHER_MODEL)
    kinds = {kind for kind in getattr(text, "layer_types", None) or [] if any(word in kind for word in OWN_SPARSITY)}
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
    """Refuse a budget that leaves nothing to Focus.

    Args:
        focused: layers that run Focus.
        config: with the budget.
        counts: heads of a layer.

    Raises:
        ConfigError: every head of every one of them has full attention.
    """
    groups = [group for index in focused for group in config.head_groups(index, counts)]
    if groups and all(group.setting.full for group in groups):
        raise ConfigError(
            "the budget gives every head full attention, so Focus would run nowhere",
            expected="at least one head without it",
            fix="use the model without Focus, or another budget",
        )
