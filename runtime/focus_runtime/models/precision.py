"""The precision that a device computes natively."""

from __future__ import annotations

import torch
from torch import nn


def native_dtype(device: str | torch.device = "cpu") -> str:
    """The narrowest type a frozen model runs in without being emulated: "bfloat16" or "float32".

    A processor without bf16 instructions (AVX2 alone, say) multiplies bf16 matrices through a plain loop: one gradient
    of a linear layer took 95 times as long as in float32 on an AMD EPYC of family 25, model 1.

    Args:
        device: torch device, such as "cpu", "cuda" or "cuda:1".
    """
    kind = torch.device(device).type
    if kind == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif kind == "cpu":
        native = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    else:
        native = False
    return "bfloat16" if native else "float32"


def dtype_name(model: nn.Module) -> str:
    """Type of the model's first parameter, such as "float32"."""
    return str(next(model.parameters()).dtype).removeprefix("torch.")
