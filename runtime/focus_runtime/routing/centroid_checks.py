"""What the tensors of a centroid file must be: one set for every routed layer, of the right shapes, finite.

What does not forbid their use is noted: groups that routing cannot tell apart or never chooses.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor

from focus_runtime.config import FocusConfig
from focus_runtime.errors import CentroidFileError

MEANING = {"projection": "hidden size, routing size", "centroids": "groups, routing size", "potential": "groups"}
LARGEST_FACTOR = 100.0  # of the logits
LARGEST = 1e6  # of a weight; with a hidden state's numbers it stays far below what float32 holds
EVERY_LAYER = "save every layer, or list the layers that have routers in the configuration"
BY_IMPORT = "if other code wrote it, `focus-explorer centroids import` reads it"
SEE_FORMAT = "see docs/centroid-files.md for the format, or train one with `focus-explorer train`"


def check_layers(
    by_layer: dict[int, dict[str, Tensor]], config: FocusConfig, name: str, *, total: int | None = None
) -> None:
    """Refuse tensors that do not belong together, to the configuration or to a model of `total` attention layers."""
    listed = set(config.layers) if config.layers is not None else set(range(total or max(by_layer) + 1))
    missing = sorted(listed - set(by_layer))
    by_config = config.layers is not None
    if missing:
        routers = f"layers {sorted(listed)}" if by_config else f"a router for each of {len(listed)} layers"
        raise CentroidFileError(f"{name} has no tensors for layer {missing[0]}", expected=routers, fix=EVERY_LAYER)
    extra = sorted(set(by_layer) - listed)
    if extra:
        why = "its configuration does not list" if by_config else f"a model of {total} layers lacks"
        raise CentroidFileError(f"{name} has tensors for layer {extra[0]}, which {why}", fix=EVERY_LAYER)
    beyond = [entry for entry in config.budget if entry.layer not in by_layer]
    if beyond:
        raise CentroidFileError(
            f"{name}: the budget names layer {beyond[0].layer}, which has no router",
            expected=f"layers {sorted(by_layer)}",
            fix="tune the budget again for this file",
        )
    shapes = {
        "projection": (_hidden_size(by_layer, config), config.routing_dim),
        "centroids": (config.num_groups, config.routing_dim),
        "potential": (config.num_groups,),
    }
    for index, parts in sorted(by_layer.items()):
        for part, expected in shapes.items():
            if part in parts:
                _check_tensor(f"{name}: layers.{index}.{part}", parts[part], expected, part)
            elif part != "potential":
                raise CentroidFileError(
                    f"{name}: layer {index} has no {part}", expected="projection and centroids", fix=SEE_FORMAT
                )
    _check_factors(by_layer, config, name)


def _check_tensor(what: str, tensor: Tensor, expected: tuple[int | None, ...], part: str) -> None:
    shape = tuple(tensor.shape)
    if shape != expected or tensor.numel() == 0:
        known = ", ".join("hidden size" if size is None else f"{size}" for size in expected)
        turned = len(shape) == 2 and shape[::-1] == expected
        raise CentroidFileError(
            f"{what} has shape {shape}" + (", which is transposed" if turned else ""),
            expected=f"({known}{',' if len(expected) == 1 else ''}): {MEANING[part]}",
            fix="save its transpose, or let `focus-explorer centroids import` do it" if turned else SEE_FORMAT,
        )
    largest = float(tensor.detach().float().abs().max())  # float64 values may not fit float32
    if not math.isfinite(largest):
        raise CentroidFileError(f"{what} contains NaN or infinity", expected="finite numbers", fix="train again")
    if largest > LARGEST:
        raise CentroidFileError(
            f"{what} contains {largest:.3g}",
            expected=f"values up to {LARGEST:g}, beyond which scores are no numbers",
            fix="train again",
        )


def _hidden_size(by_layer: dict[int, dict[str, Tensor]], config: FocusConfig) -> int | None:
    """The width that most projections have, the first of equally many; None where no shape says it."""
    shapes = [tuple(parts["projection"].shape) for _, parts in sorted(by_layer.items()) if "projection" in parts]
    right = [shape[0] for shape in shapes if len(shape) == 2 and shape[1] == config.routing_dim]
    turned = [shape[1] for shape in shapes if len(shape) == 2 and shape[0] == config.routing_dim]
    found = Counter(right or turned).most_common(1)
    return found[0][0] if found else None


def _check_factors(by_layer: dict[int, dict[str, Tensor]], config: FocusConfig, name: str) -> None:
    """All layers have factors of the logits, one a head, or none has, as the configuration says."""
    found = {index: parts["logit_factors"] for index, parts in by_layer.items() if "logit_factors" in parts}
    if not config.logit_factors and not found:
        return
    if not config.logit_factors or len(found) != len(by_layer):
        raise CentroidFileError(
            f"{name} has factors of the logits in {len(found)} of {len(by_layer)} layers, and its configuration says "
            + ("all" if config.logit_factors else "none"),
            expected="logit_factors in every layer and in the configuration, or in neither",
            fix=SEE_FORMAT,
        )
    heads = {tuple(factors.shape) for factors in found.values()}
    if len(heads) != 1 or len(next(iter(heads))) != 1 or 0 in next(iter(heads)):
        raise CentroidFileError(f"{name}: logit_factors have shapes {sorted(heads)}", expected="one number a head")
    for index, factors in found.items():
        values = factors.detach().float()
        if not bool(((values > 0) & (values <= LARGEST_FACTOR)).all()):  # also false for NaN
            raise CentroidFileError(
                f"{name}: layers.{index}.logit_factors has a value outside its range",
                expected=f"above 0, at most {LARGEST_FACTOR:g}",
                fix="train again",
            )


def group_notes(by_layer: dict[int, dict[str, Tensor]], config: FocusConfig) -> list[str]:
    """Remarks on zero, identical and never-chosen centroids, as far as tensors without a text or a model tell.

    A group is certain never to be chosen where as many others as a token may choose have its centroid and a higher
    potential, or the same one and a lower number, which wins ties.
    """
    most = max([config.top_k, *(entry.top_k for entry in config.budget if entry.top_k is not None)])
    zero, same, never = {}, {}, {}
    for layer, parts in sorted(by_layer.items()):
        scores = (parts["projection"].double() @ parts["centroids"].double().T).T  # (K, d): what tells groups apart
        largest = scores.abs().max()
        zero[layer] = [group for group, row in enumerate(scores) if not row.any()]
        alike = torch.cdist(scores, scores, p=float("inf")) <= 1e-6 * largest
        same[layer] = [g for g in range(len(scores)) if int(alike[g].sum()) > 1 and g not in zero[layer]]
        if "potential" in parts and config.assignment == "causal":
            order = torch.argsort(parts["potential"].double(), descending=True, stable=True).tolist()
            before = {g: sum(bool(alike[g, other]) for other in order[: order.index(g)]) for g in order}
            never[layer] = [g for g in sorted(order) if before[g] >= most]
    return [
        *_in_layers("zero centroids, against which every token scores 0", zero),
        *_in_layers("identical centroids, which only their potentials tell apart", same),
        *_in_layers("groups that no token can choose", never),
    ]


def _in_layers(what: str, groups: dict[int, list[int]]) -> list[str]:
    """One remark on the layers that have such groups, the first three of them by name."""
    found = {layer: listed for layer, listed in groups.items() if listed}
    if not found:
        return []
    named = [f"layer {layer}: groups {', '.join(map(str, listed))}" for layer, listed in list(found.items())[:3]]
    more = f" and {len(found) - 3} more layers" if len(found) > 3 else ""
    return [f"{what} ({'; '.join(named)}{more})"]
