"""Strategies against groups that collapse or grow apart while centroids train, and trainings with each (section 3.1).

Every strategy trains from the same routers on the same sequences. The paper names its mitigations of softmax collapse
without their formulas, so each formula here is our reading, stated in its strategy's `meaning`. Our own devices start
from Sinkhorn, which balances soft mass and not the argmax that the hard mask uses.
Shapes: B batch, T tokens, K groups, G routing size.
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import observe_routing, replace_assignment
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import hard_potential
from focus_runtime.fit.centroids import centroid_loop, training_focus
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.loss import final_hidden
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.routing.router import Assignment, CentroidRouter, sinkhorn_potential, top_k_membership
from focus_runtime.text.sequences import TokenStream
from paper.output.report import Row

KMEANS_ITERATIONS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """How routers are kept, or not kept, from putting tokens into few groups.

    Attributes:
        normalisation: of the scores, "softmax" or "sinkhorn".
        stop_gradient: routers do not pass gradients on to the hidden states they read.
        ema_decay: centroids follow the routing vectors assigned to them by `moved_centroids`, without gradients.
        recluster_every: steps after which `clustered` replaces the centroids.
        iterations: Sinkhorn's N; the configuration's when None.
        balanced: `assign_balanced` in place of Sinkhorn.
        hard: the hard mask in the forward pass, straight-through gradients.
        start_temperature: factor on tau at the first step, falling geometrically to 1 at the last.
    """

    name: str
    meaning: str
    normalisation: str = "sinkhorn"
    entropy: float = 0.0
    balance: float = 0.0
    stop_gradient: bool = False
    ema_decay: float | None = None
    recluster_every: int | None = None
    iterations: int | None = None
    rate: float = 1.0
    balanced: bool = False
    hard: bool = False
    start_temperature: float = 1.0


_STRATEGIES = {
    kind: {name: Strategy(name=name, **fields) for name, fields in named.items()}
    for kind, named in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
MITIGATIONS, DEVICES = _STRATEGIES["mitigations"], _STRATEGIES["devices"]


@dataclass(eq=False)
class StrategyTraining:
    """The training of one strategy; `run` returns its centroids, with the potentials learned along.

    Attributes:
        network: the model; frozen unless `router_rate` is given, and then its weights train at the settings' rate.
        config: of Focus, before the strategy's changes; pairs kept count at its `top_k`.
        router_rate: the routers' peak learning rate where weights train too.
        probe: (B, T) token ids whose groups are compared before and after the last tenth of the steps; None: not.
        rows: one for each step: strategy, step, loss (the language model's, nats per token), auxiliary (what the
            strategy added to it), dominance and dominance_max (share of the largest argmax group, mean over layers and
            largest; 1/K is balance), dead_groups (mean over layers), retained_pairs, and stability: the share of the
            probe's tokens that kept their group, mean over layers, nan but in the last row. The paper does not define
            its stability: this is our reading.
    """

    network: Any
    strategy: Strategy
    config: FocusConfig
    settings: TrainConfig
    router_rate: float | None = None
    probe: Tensor | None = None
    on_row: Callable[[Row], None] = lambda row: None
    rows: list[Row] = field(default_factory=list)
    _added: float = 0.0
    _dead: float = 0.0
    _probed: dict[int, Tensor] = field(default_factory=dict)
    _stability: float = math.nan

    def run(self, ids: TokenStream) -> Centroids:
        """Train on the token stream of the texts."""
        strategy, weights = self.strategy, self.router_rate is not None
        settings = dataclasses.replace(
            self.settings,
            learning_rate=self.settings.learning_rate * strategy.rate,
            hard=self.settings.hard or strategy.hard,
        )
        config = self.config.replace(
            normalisation=strategy.normalisation,
            sinkhorn_iterations=strategy.iterations or self.config.sinkhorn_iterations,
        )
        centroids = random_centroids(self.network, config, seed=settings.seed, name=strategy.name)
        vectors: dict[int, Tensor] = {}

        def keep(index: int, embedded: Tensor) -> None:
            vectors[index] = embedded.detach().flatten(0, -2).float()

        with ExitStack() as block:
            focus = block.enter_context(training_focus(self.network, centroids, weights=weights))
            block.enter_context(observe_routing(centroids, on_embedding=keep, stop_gradient=strategy.stop_gradient))
            if strategy.balanced:
                block.enter_context(replace_assignment(centroids, assign_balanced))
            composed = focus.config

            def cool(step: int) -> None:
                progress = min(1.0, step / (settings.steps - 1)) if settings.steps > 1 else 1.0
                temperature = composed.temperature * strategy.start_temperature ** (1 - progress)
                focus.config = composed.replace(temperature=temperature)  # routers take it up with the next pass

            def finish(step: int) -> None:
                self._dead = dead_groups(focus)
                move_groups(strategy, centroids, vectors, focus, step)
                self._compare_probe(focus, step)
                cool(step + 1)

            cool(0)
            loop = centroid_loop(
                focus,
                centroids,
                ids,
                settings,
                phase=strategy.name,
                extra_loss=self._extra if strategy.entropy or strategy.balance else None,
                after_step=finish,
                weights=list(self.network.parameters()) if weights else (),
                router_rate=self.router_rate,
                learn_centroids=strategy.ema_decay is None,
            )
            loop.run(self._keep)
            # layers that keep their own attention through a sliding window were not trained
            trained = {index: centroids.routers[index] for index in focus.focused_layers}
        config = centroids.config.replace(layers=tuple(trained))
        return dataclasses.replace(centroids, routers=trained, config=config)

    @torch.no_grad()
    def _compare_probe(self, focus: FocusModel, step: int) -> None:
        """Read the probe's groups a tenth before the end, and compare them with those at the end."""
        steps = self.settings.steps
        if self.probe is None or step + 1 not in (steps - max(1, steps // 10), steps):
            return
        final_hidden(self.network, self.probe)
        groups = {index: one.probabilities.argmax(dim=-1) for index, one in focus.assignments().items()}
        if step + 1 == steps and self._probed:
            same = [(groups[index] == before).float().mean().item() for index, before in self._probed.items()]
            self._stability = float(np.mean(same))
        self._probed = groups

    def _extra(self, focus: FocusModel) -> Tensor:
        parts = []
        for assignment in focus.assignments().values():
            g = assignment.probabilities.float()
            parts.append(self.strategy.entropy * entropy_loss(g) + self.strategy.balance * balance_loss(g))
        loss = torch.stack(parts).mean()
        self._added += loss.item() / self.settings.accumulation
        return loss

    def _keep(self, step: TrainStep) -> None:
        row = {
            "strategy": self.strategy.name,
            "step": step.step,
            "loss": step.loss - self._added,
            "auxiliary": self._added,
            "dominance": step.dominance,
            "dominance_max": step.dominance_max,
            "dead_groups": self._dead,
            "retained_pairs": step.retained_pairs,
            "stability": self._stability,
        }
        self._added = 0.0
        self.rows.append(row)
        self.on_row(row)


def entropy_loss(probabilities: Tensor) -> Tensor:
    """Mean entropy of (B, T, K) group probabilities over log K: 0 when every token is sure, 1 when none is."""
    entropy = -(probabilities * torch.log(probabilities.clamp_min(1e-12))).sum(dim=-1)
    return entropy.mean() / math.log(max(2, probabilities.shape[-1]))


def balance_loss(probabilities: Tensor) -> Tensor:
    """K times the sum of squared group shares, less 1: 0 when shares are equal, K - 1 when one group has all.

    A group's share is its mean probability over all tokens of the (B, T, K) batch, so the loss has a gradient but, as
    any soft mass, does not determine the argmax.
    """
    shares = probabilities.flatten(0, -2).mean(dim=0)
    return probabilities.shape[-1] * shares.square().sum() - 1.0


def assign_balanced(index: int, router: CentroidRouter, hidden: Tensor, padding: Tensor | None) -> Assignment:
    """Groups under potentials that balance the argmax over the whole batch (B, T, d); see `hard_potential`.

    The potential carries no gradient: scores are trained as if it were a constant, as it is after training.
    """
    assert padding is None, "training sequences are full"
    logits = router.logits(hidden)
    with torch.no_grad():
        rows = logits.detach().flatten(0, -2).float()
        potential = hard_potential(rows, sinkhorn_potential(rows[None], router.config.sinkhorn_iterations)[0])
    probabilities = torch.softmax(logits + potential, dim=-1)
    membership = top_k_membership(probabilities.detach(), router.config.top_k)
    return Assignment(probabilities, membership, potential.expand(logits.shape[0], -1))


@torch.no_grad()
def move_groups(
    strategy: Strategy, centroids: Centroids, vectors: dict[int, Tensor], focus: FocusModel, step: int
) -> None:
    """Move the centroids as a strategy does after a step, counted from 0, by each layer's (N, G) routing vectors."""
    reclusters = strategy.recluster_every is not None and (step + 1) % strategy.recluster_every == 0
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        if strategy.ema_decay is not None:
            chosen = assignment.probabilities.argmax(dim=-1).flatten()
            router.centroids.copy_(moved_centroids(router.centroids, vectors[index], chosen, strategy.ema_decay))
        if reclusters:
            generator = torch.Generator().manual_seed(step * 10_007 + index)
            router.centroids.copy_(clustered(vectors[index], router.centroids.shape[0], generator))


def moved_centroids(centroids: Tensor, vectors: Tensor, chosen: Tensor, decay: float) -> Tensor:
    """c <- decay c + (1 - decay) mean of its group's vectors; a group without vectors stays where it is.

    Args:
        centroids: (K, G). vectors: (N, G). chosen: (N,) group of every vector.
    """
    counts = torch.bincount(chosen, minlength=centroids.shape[0]).to(vectors.dtype)
    sums = torch.zeros_like(centroids).index_add_(0, chosen, vectors.to(centroids.dtype))
    means = sums / counts.clamp_min(1.0)[:, None]
    return torch.where(counts[:, None] > 0, decay * centroids + (1 - decay) * means, centroids)


def clustered(vectors: Tensor, groups: int, generator: torch.Generator) -> Tensor:
    """Spherical k-means of (N, G) vectors: unit centres, (K, G), whose scores put every vector into its cluster.

    Starts from k-means++ draws; an empty cluster takes the vector furthest from its centre.
    """
    unit = normalize(vectors.float(), dim=-1)
    centres = unit[torch.randint(unit.shape[0], (1,), generator=generator).to(unit.device)]
    while centres.shape[0] < groups:
        distance = (1 - (unit @ centres.T).amax(dim=1)).clamp_min(1e-9)
        drawn = torch.multinomial(distance.cpu(), 1, generator=generator).to(unit.device)
        centres = torch.cat([centres, unit[drawn]])
    for _ in range(KMEANS_ITERATIONS):
        score, nearest = (unit @ centres.T).max(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, unit)
        for empty in (torch.bincount(nearest, minlength=groups) == 0).nonzero().flatten().tolist():
            furthest = score.argmin()
            sums[empty], score[furthest] = unit[furthest], math.inf
        centres = normalize(sums, dim=-1)
    return centres


def dead_groups(focus: FocusModel) -> float:
    """Groups that are no token's most probable one in the latest pass, mean over layers."""
    counts = []
    for assignment in focus.assignments().values():
        alive = torch.unique(assignment.probabilities.argmax(dim=-1)).numel()
        counts.append(assignment.probabilities.shape[-1] - alive)
    return float(np.mean(counts))
