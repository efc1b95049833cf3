"""What the processes of one training agree on."""

from __future__ import annotations

from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor


def average(value: Tensor) -> Tensor:
    """Mean of a tensor over all processes; the tensor itself when there is one."""
    return value if PartialState().num_processes == 1 else reduce(value, "mean")
