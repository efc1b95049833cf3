"""Distillation layer by layer: what Focus changes in the output of each attention layer, on the same input.

The model runs with full attention, so every layer sees what it sees without Focus. Beside its own output each routed
layer computes Focus's under the soft gate; the error is what the difference is after the output projection, relative to
what full attention adds to the hidden states there. Gradients stay inside a layer: a step needs no backward pass
through the model, and layers cannot make up for each other's errors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden


def layer_errors(focus: FocusModel, ids: Tensor) -> dict[int, Tensor]:
    """Error of every routed layer in one pass: sums over tokens of |W (Focus - full)|^2 / |W full|^2, fp32 scalars.

    Args:
        focus: the composed model, within its training gate, its weights frozen.
        ids: (B, T) token ids.
    """
    with focus.compared_by_layer() as comparison:
        final_hidden(focus.model, ids)
    return dict(comparison.errors)


def layer_error(focus: FocusModel, ids: Tensor) -> Tensor:
    """Mean of `layer_errors` over layers: 0 where Focus returns what full attention does, 1 where it returns none."""
    return torch.stack([error.to(ids.device) for error in layer_errors(focus, ids).values()]).mean()
