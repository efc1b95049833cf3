"""Full fine-tuning: every weight may change; the originals are kept in main memory and put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import ModelError
from paper.methods.handle import Handle


@dataclass(frozen=True, kw_only=True, slots=True)
class FullFinetune:
    """There is nothing to set."""

    name: ClassVar[str] = "full_finetune"

    def attach(self, model: Any, *, text: Tensor | None = None) -> FinetuneHandle:
        """Make every weight trainable; see `Baseline.attach`. Focus or a baseline may be on the model."""
        return FinetuneHandle(model)


class FinetuneHandle(Handle):
    """A model whose weights may change. It holds a second copy of them in main memory."""

    def __init__(self, model: Any) -> None:
        if isinstance(model, FocusModel | Handle):
            raise ModelError("this is a handle, not a model", fix="give its .model")
        self.model = model
        self._saved = [
            (parameter, parameter.detach().to("cpu", copy=True), parameter.requires_grad)
            for parameter in model.parameters()
        ]
        for parameter in self.parameters():
            parameter.requires_grad_(True)

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter, _, _ in self._saved if parameter.is_floating_point()]

    @torch.no_grad()
    def detach(self) -> Any:
        """Put the original weights back, bit for bit, and drop the gradients."""
        for parameter, original, trained in self._saved:
            parameter.copy_(original)
            parameter.requires_grad_(trained)
            parameter.grad = None
        self._saved = []
        return self.model
