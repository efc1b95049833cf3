"""Which layers of a model run Focus, and that some do."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from focus_runtime.budget import HeadCounts
from focus_runtime.config import SLIDING_LAYERS, FocusConfig
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL
from focus_runtime.routing.router import CentroidRouter


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
        InputError: Focus would run nowhere, or the choice is unknown. ModelError: the model attends within chunks.
    """
    if choice not in SLIDING_LAYERS:
        raise InputError(f"sliding_layers is {choice!r}", expected=" or ".join(SLIDING_LAYERS))
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or []  # type: ignore[operator, union-attr]
    if "chunked_attention" in kinds:
        raise ModelError(
            f"{type(model).__name__} attends within fixed chunks, which Focus cannot follow", fix=OTHER_MODEL
        )
    everywhere = {index for index in routers if index in sliding}
    on_global = {index for index in everywhere if sliding[index] is None}
    if choice == "own" and not on_global:
        raise ModelError(
            f"every layer of {type(model).__name__} that these centroids cover has a sliding window, so with "
            "sliding_layers='own' Focus would run nowhere",
            fix="use sliding_layers='focus', which runs Focus inside each layer's own window",
        )
    return on_global if choice != "focus" and on_global else everywhere


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
