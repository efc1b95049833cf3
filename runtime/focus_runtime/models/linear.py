"""Linear layers in float32 on the CPU by oneDNN, where that is faster than the library torch takes.

torch multiplies float32 matrices with Intel's MKL, which takes half of what AMD's processors can do; oneDNN, which
torch brings too, takes more of it: docs/backends.md has figures. Both compute in float32; the order of sums differs.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

LEAST_PRODUCTS = 2**22  # of one call; below, oneDNN's own preparations cost more than they save
CLEARLY = 1.3  # times as fast: what is left to chance is slower than that
_ROWS, _SIZE, _REPEATS = 128, 768, 7


class OneDnnLinear(nn.Linear):
    """A linear layer that oneDNN computes where no gradient is wanted and the input is large enough."""

    least_numbers: int

    def forward(self, input: Tensor) -> Tensor:
        """(…, in) -> (…, out), as `nn.Linear`."""
        if input.numel() < self.least_numbers or not self._is_plain(input):
            return super().forward(input)
        return _by_onednn(input, self.weight, self.bias)

    def _is_plain(self, input: Tensor) -> bool:
        """Whether oneDNN's operator computes the same here: it knows neither gradients nor autocast."""
        if torch.is_grad_enabled() and (input.requires_grad or self.weight.requires_grad):
            return False
        return (
            input.device.type == "cpu" == self.weight.device.type
            and input.dtype == torch.float32 == self.weight.dtype
            and not torch.is_autocast_enabled("cpu")
        )


def use_fast_linear(model: nn.Module) -> bool:
    """Let oneDNN compute a model's float32 linear layers where it is clearly faster on this processor; says whether.

    Weights and names stay; `nn.Linear` modules (no subclasses of it) become `OneDnnLinear`.
    """
    plain = [module for module in model.modules() if type(module) is nn.Linear and module.weight.dtype == torch.float32]
    if not plain or not onednn_is_faster():
        return False
    for module in plain:
        module.__class__ = OneDnnLinear
        cast(OneDnnLinear, module).least_numbers = -(-LEAST_PRODUCTS // module.weight.shape[0])
    return True


def linear_layers(model: nn.Module) -> dict[str, str]:
    """What computes a model's linear layers where torch would take another: {"linear layers": "oneDNN"}."""
    fast = any(isinstance(module, OneDnnLinear) for module in model.modules())
    return {"linear layers": "oneDNN"} if fast else {}


@lru_cache(maxsize=1)
def onednn_is_faster() -> bool:
    """Whether a product of two matrices is clearly faster by oneDNN than by torch; timed once in a process."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    random = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(count, _SIZE, generator=random) for count in (_ROWS, _SIZE))
    with torch.no_grad():
        seconds = [_least_seconds(by, rows, weight) for by in (nn.functional.linear, _by_onednn)]
    return seconds[0] > CLEARLY * seconds[1]


def _least_seconds(by: Callable[..., Tensor], rows: Tensor, weight: Tensor) -> float:
    """Of some calls after a first one."""
    by(rows, weight, None)
    return min(timeit.repeat(lambda: by(rows, weight, None), number=1, repeat=_REPEATS))


def _by_onednn(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    operators: Any = torch.ops.mkldnn
    return cast(Tensor, operators._linear_pointwise(input, weight, bias, "none", [], ""))
