"""CentroidRouter: hidden states -> group probabilities -> membership, for one attention layer.

Shape suffixes: B batch, T tokens, E model width (d in the paper), R routing size (d_g), K groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from focus_runtime.config import FocusConfig
from focus_runtime.gpu import takes_hidden, tried
from focus_runtime.native import library

MOST_TOKENS = 16  # more repay torch's calls
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}


def few_tokens_fit(hidden: Tensor) -> bool:
    """Whether `route_few_tokens` takes hidden states (B, T, E): few, on the CPU, without gradient; and is compiled."""
    return (
        hidden.shape[0] * hidden.shape[1] <= MOST_TOKENS
        and hidden.dtype in ELEMENTS
        and hidden.is_contiguous()
        and hidden.device.type == "cpu"
        and not torch.is_grad_enabled()
        and library()[0] is not None
    )


def route_few_tokens(hidden: Tensor, weights: Tensor, potential: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Probabilities (B, T, K) float32 and groups (B, T) of tokens, as `CentroidRouter.own_assignment` defines them.

    `weights`: (E, K) float32, contiguous: W_g C^T / tau.
    """
    batch, length, width = hidden.shape
    groups = weights.shape[1]
    probabilities = torch.empty(batch, length, groups, dtype=torch.float32)
    membership = torch.empty(batch, length, dtype=torch.int64)
    functions = library()[0]
    assert functions is not None
    addresses = (x.data_ptr() for x in (hidden, weights, potential, probabilities, membership))
    failed = functions.focus_route_cpu(*addresses, ELEMENTS[hidden.dtype], batch * length, width, groups, top_k)
    assert not failed, "a configuration has at most 63 groups"
    return probabilities, membership


ROUTING = "routing"  # name of the Triton kernel in warnings


@dataclass(frozen=True, slots=True)
class MembershipEdit:
    """Bits of the membership that are set or cleared by hand."""

    links: Tensor  # (T,) int64 bit sets that are added; the two tokens of a link share a bit beyond the K groups
    silenced: int  # bit set of the groups that no token belongs to

    def applied(self, membership: Tensor) -> Tensor:
        """The membership (..., T) int64 after the changes."""
        return membership & ~self.silenced | self.links


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a router decided for a batch."""

    probabilities: Tensor  # (B, T, K) float, rows sum to 1
    membership: Tensor  # (B, T) int64, bit g set when the token belongs to group g
    potential: Tensor  # (B, K) or (K,) float, the column term that was used
    exact: bool = False  # every token that is not `everywhere` has exactly the configured k of K groups
    everywhere: Tensor | None = None  # (B, T) bool, tokens that belong to all groups whatever the k
    edit: MembershipEdit | None = None  # changes of the membership whatever the k, made by hand
    by_top_k: tuple[tuple[int, ...], Tensor] | None = None  # several k, and (S, B, T) groups decided together for them

    def part(self, rows: slice, tokens: slice) -> Assignment:
        """That of some tokens of some texts; there may be no edit."""
        everywhere, together, potential = self.everywhere, self.by_top_k, self.potential
        return replace(
            self,
            probabilities=self.probabilities[rows, tokens],
            membership=self.membership[rows, tokens],
            potential=potential[rows] if potential.dim() == 2 else potential,
            everywhere=None if everywhere is None else everywhere[rows, tokens],
            by_top_k=None if together is None else (together[0], together[1][:, rows, tokens]),
        )

    def in_all_groups(self, tokens_BT: Tensor) -> Assignment:
        """The same with some tokens in all groups: every later token sees them, and they see every earlier one."""
        everywhere = tokens_BT if self.everywhere is None else self.everywhere | tokens_BT
        membership = self.membership | all_groups(everywhere, self.probabilities.shape[-1])
        return replace(self, membership=membership, everywhere=everywhere, by_top_k=None)


def all_groups(tokens: Tensor, num_groups: int) -> Tensor:
    """Bit sets of all groups for some tokens, of none for the others."""
    return tokens.to(torch.int64) * ((1 << num_groups) - 1 if num_groups < 64 else -1)


@dataclass(frozen=True, eq=False, slots=True)
class RouterObserver:
    """Functions that one router calls while it is observed; attached by `focus_runtime.composition.observe`."""

    on_embedding: Callable[[Tensor], object] | None = None  # routing vectors (B, T, R), attached to the autograd graph
    on_logits: Callable[[Tensor], object] | None = None  # scores over temperature (B, T, K)
    assign: Callable[[Tensor, Tensor | None], Assignment] | None = None  # hidden states (B, T, E), padding (B, T)
    stop_gradient: bool = False  # the router passes no gradient back to its hidden states


class Observers(list[RouterObserver]):
    """The observers of one router, oldest first; a copied or pickled router starts without any."""

    def __reduce_ex__(self, protocol: object) -> tuple[type[Observers], tuple[()]]:
        return Observers, ()


def sinkhorn_potential(logits_BTK: Tensor, iterations: int, padding_BT: Tensor | None = None) -> Tensor:
    """Column potentials of Sinkhorn's balancing, in log space (paper, section 3.1).

    After N rounds of dividing by column sums and then by row sums, row i of the plan is softmax(logits_i + b);
    this returns b, so that softmax(logits + b) equals the iterated plan. A row step cancels every earlier row
    step, so only the column terms have to be carried. Column targets are T/K, and b (B, K) is centred: adding a
    constant to b changes no softmax.

    `logits_BTK` are scores divided by the temperature, `iterations` is N; padded tokens do not count in column sums.
    """
    rows_BTK = logits_BTK
    if padding_BT is not None:
        rows_BTK = rows_BTK.masked_fill(~padding_BT[..., None], float("-inf"))
    potential_BK = -torch.logsumexp(rows_BTK, dim=1)
    for _ in range(iterations - 1):
        row_term_BT1 = torch.logsumexp(logits_BTK + potential_BK[:, None, :], dim=-1, keepdim=True)
        potential_BK = -torch.logsumexp(rows_BTK - row_term_BT1, dim=1)
    return potential_BK - potential_BK.mean(dim=-1, keepdim=True)


def top_k_membership(probabilities: Tensor, top_k: int) -> Tensor:
    """Bit set of each token's k most probable groups; ties go to the lower group number."""
    if top_k == 0:
        return torch.zeros(probabilities.shape[:-1], dtype=torch.int64, device=probabilities.device)
    if top_k == 1:  # argmax takes the first of equals, in a third of the time
        return torch.bitwise_left_shift(1, probabilities.argmax(dim=-1))
    order = torch.argsort(probabilities, dim=-1, descending=True, stable=True)[..., :top_k]
    return torch.bitwise_left_shift(torch.ones_like(order), order).sum(dim=-1)


class CentroidRouter(nn.Module):
    """Projection, centroids and column potential of one layer (paper, section 3.1).

    Parameters: `projection` (E, R), `centroids` (K, R); buffer `potential` (K,), zero until learned. Beside the groups,
    where they were learned: `logit_factors` (Hq,), by which each query head of the layer multiplies its logits under
    Focus, to the power of the share of the text beyond its window (composition/factors.py); else None.

    `config` has the current settings; `compose` replaces them by those of the composition.
    """

    by_centroids: ClassVar[bool] = True  # scores against centroids decide the groups; a subclass says where not
    potential: Tensor
    logit_factors: nn.Parameter | None

    def __init__(self, hidden_size: int, config: FocusConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = nn.Parameter(torch.empty(hidden_size, config.routing_dim))
        self.centroids = nn.Parameter(torch.empty(config.num_groups, config.routing_dim))
        self.register_buffer("potential", torch.zeros(config.num_groups))
        self.register_parameter("logit_factors", None)
        self.has_potential = False  # until it is learned or calibrated
        self.observers = Observers()  # called while the router runs
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
        """Routing vectors h W_g: (B, T, E) -> (B, T, R), in the router's dtype."""
        observers = tuple(self.observers)
        if any(observer.stop_gradient for observer in observers):
            hidden = hidden.detach()
        routing_BTR = hidden.to(self.projection.dtype) @ self.projection
        for observer in observers:
            if observer.on_embedding is not None:
                observer.on_embedding(routing_BTR)
        return routing_BTR

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over temperature, S / tau: (B, T, E) -> (B, T, K)."""
        observers = tuple(self.observers)
        plain = not torch.is_grad_enabled()
        embeds = any(observer.on_embedding is not None or observer.stop_gradient for observer in observers)
        if not plain or embeds or self.projection.is_inference():
            logits_BTK = self.embed(hidden) @ self.centroids.T / self.config.temperature
        else:
            with torch.autocast(hidden.device.type, enabled=False):  # kernels decide without it too
                logits_BTK = hidden.to(self.projection.dtype) @ self.scoring_weights()
        for observer in observers:
            if observer.on_logits is not None:
                observer.on_logits(logits_BTK)
        return logits_BTK

    def scoring_weights(self) -> Tensor:
        """W_g C^T / tau, (E, K), kept until a parameter changes: one small product a token in place of two and more.

        Writing to `parameter.data` goes unnoticed; write to the parameter, under `torch.no_grad()`.
        """
        own = self._parameters  # see `routes_on_gpu`
        projection, centroids = own["projection"], own["centroids"]
        assert projection is not None
        assert centroids is not None
        temperature = self.config.temperature
        versions = (projection.data_ptr(), projection._version, centroids.data_ptr(), centroids._version)
        state = (*versions, projection.dtype, temperature)
        if self._scoring is None or self._scoring[0] != state:
            with torch.autocast(projection.device.type, enabled=False):  # kept, and read by kernels as what it is
                self._scoring = (state, (projection @ centroids.T / temperature).detach())
        return self._scoring[1]

    def assign(self, hidden: Tensor, *, padding: Tensor | None = None, assignment: str | None = None) -> Assignment:
        """Groups of every token; the latest observer with `assign` decides them in place of `own_assignment`."""
        for observer in reversed(tuple(self.observers)):
            if observer.assign is not None:
                return observer.assign(hidden, padding)
        return self.own_assignment(hidden, padding=padding, assignment=assignment)

    def routes_on_gpu(self, hidden: Tensor) -> bool:
        """Whether the kernel of routing/on_gpu.py decides the groups of these tokens by the causal rule."""
        if self.observers or not self.by_centroids or not takes_hidden(hidden):
            return False
        projection = self._parameters["projection"]  # attributes of a module take several times as long to look up
        assert projection is not None
        return projection.dtype == torch.float32 and not projection.is_inference()

    def own_assignment(
        self, hidden: Tensor, *, padding: Tensor | None = None, assignment: str | None = None
    ) -> Assignment:
        """Groups of every token as the router itself decides them; the configuration's `assignment` when None."""
        causal = (assignment or self.config.assignment) == "causal"
        routed = self._routed_by_kernel(hidden) if causal else None
        if routed is not None:
            return routed
        logits_BTK = self.logits(hidden)
        if causal:
            potential = self.potential
        elif self.config.normalisation == "softmax":
            potential = logits_BTK.new_zeros(logits_BTK.shape[0], logits_BTK.shape[2])
        else:
            potential = sinkhorn_potential(logits_BTK, self.config.sinkhorn_iterations, padding)
        column_term = potential if causal else potential[:, None, :]
        probabilities_BTK = torch.softmax(logits_BTK + column_term, dim=-1)
        membership_BT = top_k_membership(probabilities_BTK.detach(), self.config.top_k)
        return Assignment(probabilities_BTK, membership_BT, potential, exact=True)

    def _routed_by_kernel(self, hidden: Tensor) -> Assignment | None:
        """Groups by the causal rule in one call; None where no kernel takes these tokens."""
        if self.observers:
            return None
        if few_tokens_fit(hidden) and not self.projection.is_inference():
            weights_EK, potential = self.scoring_weights(), self.potential
            if weights_EK.dtype == torch.float32:
                routed = route_few_tokens(hidden, weights_EK, potential, self.config.top_k)
                return Assignment(*routed, potential, exact=True)
        if not self.routes_on_gpu(hidden):
            return None
        weights_EK, potential, top_ks = self.scoring_weights(), self.potential, (self.config.top_k,)
        from focus_runtime.routing.on_gpu import route_on_gpu  # needs Triton

        found = tried(ROUTING, hidden, lambda: route_on_gpu(hidden, weights_EK, potential, top_ks))
        return None if found is None else Assignment(found[0], found[1][0], potential, exact=True)
