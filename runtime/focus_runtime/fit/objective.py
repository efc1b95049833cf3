"""What a training minimises: the language model's loss, the divergence from full attention's predictions, both, or what
Focus changes in every layer.

Distillation needs the vocabulary twice for every token. The logits are computed in slabs of tokens, and the gradient of
a slab is taken at once with respect to its hidden states: only hidden states and their gradient are kept, so memory is
linear in the text and independent of the vocabulary's size. That is possible because the output embedding is frozen.

The loss of layers compares them one by one. The model runs with full attention, so every layer sees what it sees
without Focus; beside its output each routed layer computes Focus's under the soft gate. Gradients stay inside a layer:
a step needs no backward pass through the model, and layers cannot make up for each other's errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.modes import Comparison
from focus_runtime.measure.loss import final_hidden, slabs, token_nll, vocabulary_logits


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The loss of one pass, with its parts in nats per token. None: not measured."""

    objective: Tensor  # scalar that is minimised
    nll: Tensor | None = None  # of the text
    divergence: Tensor | None = None  # KL(full attention || Focus)
    layer_error: Tensor | None = None

    def values(self) -> list[float]:
        """Objective, loss, divergence and layer error; nan for what was not measured."""
        parts = (self.objective, self.nll, self.divergence, self.layer_error)
        return [math.nan if part is None else part.item() for part in parts]


def training_loss(focus: FocusModel, ids: Tensor, *, loss: str, distil_weight: float) -> StepLoss:
    """The loss of one pass over (B, T) token ids of a model within its training gate.

    `loss` and `distil_weight` are as in `TrainConfig`; "distil" and "both" run the same weights once more with full
    attention and without gradient.
    """
    if loss == "layers":
        errors = layer_errors(focus, ids).values()
        mean = torch.stack([error.to(ids.device) for error in errors]).mean()
        return StepLoss(mean, layer_error=mean)
    if loss == "lm":
        return language_loss(focus.model, ids)
    with torch.no_grad(), focus.full_attention():
        teacher = final_hidden(focus.model, ids)
    hidden = final_hidden(focus.model, ids)  # last: the groups that are read afterwards are this pass's
    weights = (0.0, 1.0) if loss == "distil" else (1.0, distil_weight)
    return distillation_loss(focus.model, hidden, teacher, ids, nll_weight=weights[0], divergence_weight=weights[1])


def language_loss(model: Any, ids: Tensor) -> StepLoss:
    """The language model's loss on (B, T) token ids."""
    nll = token_nll(model, final_hidden(model, ids), ids).mean()
    return StepLoss(nll, nll)


def layer_errors(focus: FocusModel, ids: Tensor) -> dict[int, Tensor]:
    """Error of every routed layer in one pass: sums over tokens of |W (Focus - full)|^2 / |W full|^2, fp32 scalars.

    0: Focus returns what full attention does; 1: it returns none of it. W is the output projection.
    """
    with focus.entered(Comparison()) as comparison:
        final_hidden(focus.model, ids)
    return dict(comparison.errors)


def distillation_loss(
    model: Any, hidden: Tensor, teacher: Tensor, ids: Tensor, *, nll_weight: float, divergence_weight: float
) -> StepLoss:
    """Weighted sum of language model loss and divergence, means over all tokens but the last, in nats per token.

    The divergence of a token is KL(p || q) = sum over the vocabulary of p (log p - log q), with p the prediction from
    `teacher`, (B, T, d) of `final_hidden` with full attention, and q the one from `hidden`, the same under Focus, which
    gets the gradient. The model's output embedding is frozen.
    """
    return StepLoss(*_InSlabs.apply(hidden, teacher, ids, model, nll_weight, divergence_weight))


class _InSlabs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, teacher: Tensor, ids: Tensor, model: Any, nll_weight: float, divergence_weight: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        needs_gradient = ctx.needs_input_grad[0]
        grads = torch.zeros_like(hidden) if needs_gradient else None
        sums = torch.zeros(2, dtype=torch.float64)
        scored = ids.shape[1] - 1
        for slab in slabs(scored):
            expected = torch.log_softmax(vocabulary_logits(model, teacher[:, slab]), dim=-1)
            target = ids[:, slab.start + 1 : slab.stop + 1, None].to(expected.device)
            with torch.set_grad_enabled(needs_gradient):
                part = hidden[:, slab].detach().requires_grad_(needs_gradient)
                predicted = torch.log_softmax(vocabulary_logits(model, part), dim=-1)
                nll = -predicted.gather(-1, target).sum()
                divergence = torch.nn.functional.kl_div(predicted, expected, reduction="sum", log_target=True)
                objective = nll_weight * nll + divergence_weight * divergence
            if grads is not None:
                grads[:, slab] = torch.autograd.grad(objective, part)[0]
            sums += torch.stack([nll.detach(), divergence.detach()]).double().cpu()
        ctx.save_for_backward(grads)
        ctx.count = ids.shape[0] * scored
        nll, divergence = (sums / ctx.count).to(hidden.device, torch.float32)
        ctx.mark_non_differentiable(nll, divergence)
        return nll_weight * nll + divergence_weight * divergence, nll, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        (grads,) = ctx.saved_tensors
        # divided here, after a scaler's factor: a mean's gradient would underflow in fp16
        return (grads * (grad / ctx.count)).to(grads.dtype), None, None, None, None, None
