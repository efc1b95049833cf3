"""CentroidRouter: hidden states -> group probabilities -> membership, for one attention layer.

It knows nothing of attention or of models. Shapes: B batch, T tokens, K groups, d hidden size, G = d_g routing size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from focus_runtime.config import FocusConfig


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a router decided for a batch.

    Attributes:
        probabilities: (B, T, K) float, rows sum to 1.
        membership: (B, T) int64, bit g set when the token belongs to group g.
        potential: (B, K) or (K,) float, the column term that was used.
    """

    probabilities: Tensor
    membership: Tensor
    potential: Tensor


def sinkhorn_potential(logits: Tensor, iterations: int, padding: Tensor | None = None) -> Tensor:
    """Column potentials of Sinkhorn's balancing, in log space (paper, section 3.1).

    After N rounds of dividing by column sums and then by row sums, row i of the plan is softmax(logits_i + b);
    this returns b, so that softmax(logits + b) equals the iterated plan. A row step cancels every earlier row
    step, so only the column terms have to be carried. Column targets are T/K, and b is centred: adding a
    constant to b changes no softmax.

    Args:
        logits: (B, T, K) scores divided by the temperature.
        iterations: N, at least 1.
        padding: (B, T) bool, True for real tokens; padded tokens do not count in the column sums.

    Returns:
        (B, K) float, mean 0.
    """
    rows = logits
    if padding is not None:
        rows = rows.masked_fill(~padding[..., None], float("-inf"))
    potential = -torch.logsumexp(rows, dim=1)
    for _ in range(iterations - 1):
        row_term = torch.logsumexp(logits + potential[:, None, :], dim=-1, keepdim=True)
        potential = -torch.logsumexp(rows - row_term, dim=1)
    return potential - potential.mean(dim=-1, keepdim=True)


def top_k_membership(probabilities: Tensor, top_k: int) -> Tensor:
    """Bit set of each token's k most probable groups; ties go to the lower group number.

    Args:
        probabilities: (..., K).
        top_k: k, between 1 and K.

    Returns:
        (...) int64.
    """
    if top_k == 1:  # argmax takes the first of equals, in a third of the time
        return torch.bitwise_left_shift(1, probabilities.argmax(dim=-1))
    order = torch.argsort(probabilities, dim=-1, descending=True, stable=True)[..., :top_k]
    return torch.bitwise_left_shift(torch.ones_like(order), order).sum(dim=-1)


class CentroidRouter(nn.Module):
    """Projection, centroids and column potential of one layer (paper, section 3.1).

    Parameters: `projection` (d, d_g), `centroids` (K, d_g); buffer `potential` (K,), zero until learned.
    """

    potential: Tensor

    def __init__(self, hidden_size: int, config: FocusConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Parameter(torch.empty(hidden_size, config.routing_dim))
        self.centroids = nn.Parameter(torch.empty(config.num_groups, config.routing_dim))
        self.register_buffer("potential", torch.zeros(config.num_groups))
        self.has_potential = False
        self._scoring: tuple[object, Tensor] | None = None

    def reset(self, generator: torch.Generator) -> None:
        """Random initialisation: routing vectors of about unit variance per unit-variance input, unit centroids."""
        with torch.no_grad():
            self.projection.normal_(0.0, self.projection.shape[0] ** -0.5, generator=generator)
            self.centroids.normal_(0.0, 1.0, generator=generator)
            self.centroids.div_(self.centroids.norm(dim=-1, keepdim=True))
            self.potential.zero_()
        self.has_potential = False

    def embed(self, hidden: Tensor) -> Tensor:
        """Routing vectors h W_g: (B, T, d) -> (B, T, d_g), in the router's dtype."""
        return hidden.to(self.projection.dtype) @ self.projection

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over temperature, S / tau: (B, T, d) -> (B, T, K)."""
        plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled(hidden.device.type)
        if not plain or "embed" in self.__dict__ or self.projection.is_inference():
            return self.embed(hidden) @ self.centroids.T / self.config.temperature
        return hidden.to(self.projection.dtype) @ self._scoring_weights()

    def _scoring_weights(self) -> Tensor:
        """W_g C^T / tau, (d, K), kept until a parameter changes: one small product a token in place of two and more.

        Writing to `parameter.data` goes unnoticed; write to the parameter, under `torch.no_grad()`.
        """
        weights = (self.projection, self.centroids)
        state = (*((w.data_ptr(), w._version, w.dtype) for w in weights), self.config.temperature)
        if self._scoring is None or self._scoring[0] != state:
            self._scoring = (state, (self.projection @ self.centroids.T / self.config.temperature).detach())
        return self._scoring[1]

    def assign(self, hidden: Tensor, *, padding: Tensor | None = None, assignment: str | None = None) -> Assignment:
        """Groups of every token.

        Args:
            hidden: (B, T, d), the tensor that enters the attention module.
            padding: (B, T) bool, True for real tokens.
            assignment: "causal" or "sinkhorn"; the configuration's when None.
        """
        logits = self.logits(hidden)
        if (assignment or self.config.assignment) == "sinkhorn":
            if self.config.normalisation == "softmax":
                potential = logits.new_zeros(logits.shape[0], logits.shape[2])
            else:
                potential = sinkhorn_potential(logits, self.config.sinkhorn_iterations, padding)
            probabilities = torch.softmax(logits + potential[:, None, :], dim=-1)
        else:
            potential = self.potential
            probabilities = torch.softmax(logits + potential, dim=-1)
        return Assignment(probabilities, top_k_membership(probabilities.detach(), self.config.top_k), potential)
