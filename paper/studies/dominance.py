"""Group dominance: softmax assignment, the mitigations tried against its collapse, and Sinkhorn (paper, section 3.1).

Every strategy trains from the same routers on the same sequences; `measure_dominance` records how the groups fare. The
paper names the mitigations without their formulas, so each formula here is our reading, stated in its strategy's
`meaning`.
Shapes: B batch, T tokens, K groups, G routing size.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor
from torch.nn.functional import normalize

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import observe_routing
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.fit.centroids import centroid_loop, training_focus
from focus_runtime.fit.loop import checkpointing
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.loss import check_positions, final_hidden
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.text.sequences import TokenStream, encode_texts

ENTROPY, BALANCE = 0.01, 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """How routers are kept, or not kept, from putting every token into one group.

    Attributes:
        name: as in `STRATEGIES`.
        meaning: its definition in one sentence.
        normalisation: of the scores, "softmax" or "sinkhorn".
        entropy: weight of `entropy_loss`.
        balance: weight of `balance_loss`.
        stop_gradient: routers do not pass gradients on to the hidden states they read.
        ema_decay: centroids follow the routing vectors assigned to them by `moved_centroids`, without gradients.
        recluster_every: steps after which `clustered` replaces the centroids.
    """

    name: str
    meaning: str
    normalisation: str = "softmax"
    entropy: float = 0.0
    balance: float = 0.0
    stop_gradient: bool = False
    ema_decay: float | None = None
    recluster_every: int | None = None


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy(name="softmax", meaning="g = softmax(S / tau) and nothing else: the reference"),
        Strategy(
            name="entropy-balance",
            meaning="softmax; the loss gains 0.01 of the normalised token entropy and 0.01 of the balance loss",
            entropy=ENTROPY,
            balance=BALANCE,
        ),
        Strategy(
            name="stop-gradient",
            meaning="as entropy-balance, and routers read their inputs without passing gradients back to them",
            entropy=ENTROPY,
            balance=BALANCE,
            stop_gradient=True,
        ),
        Strategy(
            name="ema",
            meaning="softmax; gradients train the projection alone, and centroids follow an average (decay 0.99) of "
            "the routing vectors assigned to them",
            ema_decay=0.99,
        ),
        Strategy(
            name="recluster",
            meaning="softmax; every 100 steps spherical k-means on the batch's routing vectors replaces the centroids",
            recluster_every=100,
        ),
        Strategy(
            name="balance-x5",
            meaning="as entropy-balance, with five times the weight on the balance loss",
            entropy=ENTROPY,
            balance=5 * BALANCE,
        ),
        Strategy(
            name="sinkhorn",
            meaning="g from Sinkhorn's balancing over the sequence, and nothing else",
            normalisation="sinkhorn",
        ),
    )
}


def entropy_loss(probabilities: Tensor) -> Tensor:
    """Mean entropy of the tokens' group probabilities over log K: 0 when every token is sure, 1 when none is.

    Args:
        probabilities: (B, T, K), rows sum to 1.
    """
    entropy = -(probabilities * torch.log(probabilities.clamp_min(1e-12))).sum(dim=-1)
    return entropy.mean() / math.log(max(2, probabilities.shape[-1]))


def balance_loss(probabilities: Tensor) -> Tensor:
    """K times the sum of squared group shares, less 1: 0 when shares are equal, K - 1 when one group has all.

    A group's share is its mean probability over all tokens of the batch, so the loss has a gradient but, as any soft
    mass, does not determine the argmax.

    Args:
        probabilities: (B, T, K).
    """
    shares = probabilities.flatten(0, -2).mean(dim=0)
    return probabilities.shape[-1] * shares.square().sum() - 1.0


def moved_centroids(centroids: Tensor, vectors: Tensor, chosen: Tensor, decay: float) -> Tensor:
    """Exponential moving average of the routing vectors of each group.

    c <- decay c + (1 - decay) mean of its vectors; a group without vectors stays where it is.

    Args:
        centroids: (K, G). vectors: (N, G). chosen: (N,) group of every vector.
        decay: share of the old centroids that is kept.
    """
    counts = torch.bincount(chosen, minlength=centroids.shape[0]).to(vectors.dtype)
    sums = torch.zeros_like(centroids).index_add_(0, chosen, vectors.to(centroids.dtype))
    means = sums / counts.clamp_min(1.0)[:, None]
    return torch.where(counts[:, None] > 0, decay * centroids + (1 - decay) * means, centroids)


def clustered(vectors: Tensor, groups: int, generator: torch.Generator, *, iterations: int = 20) -> Tensor:
    """Spherical k-means: unit centres, (K, G), whose scores put every vector into its cluster.

    Starts from k-means++ draws; an empty cluster takes the vector furthest from its centre.

    Args:
        vectors: (N, G). generator: on the CPU.
        groups: K. iterations: of k-means.
    """
    unit = normalize(vectors.float(), dim=-1)
    centres = unit[torch.randint(unit.shape[0], (1,), generator=generator).to(unit.device)]
    while centres.shape[0] < groups:
        distance = (1 - (unit @ centres.T).amax(dim=1)).clamp_min(1e-9)
        drawn = torch.multinomial(distance.cpu(), 1, generator=generator).to(unit.device)
        centres = torch.cat([centres, unit[drawn]])
    for _ in range(iterations):
        score, nearest = (unit @ centres.T).max(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, unit)
        for empty in (torch.bincount(nearest, minlength=groups) == 0).nonzero().flatten().tolist():
            furthest = score.argmin()
            sums[empty], score[furthest] = unit[furthest], math.inf
        centres = normalize(sums, dim=-1)
    return centres


@dataclass(eq=False)
class RoutingVectors:
    """While the block runs, keeps the routing vectors of every layer's latest pass, detached, (N, G).

    Attributes:
        stop_gradient: whether routers read their hidden states without passing gradients back.
    """

    centroids: Centroids
    stop_gradient: bool = False
    latest: dict[int, Tensor] = field(default_factory=dict)
    _block: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> RoutingVectors:
        self._block.enter_context(
            observe_routing(self.centroids, on_embedding=self._keep, stop_gradient=self.stop_gradient)
        )
        return self

    def _keep(self, index: int, vectors: Tensor) -> None:
        self.latest[index] = vectors.detach().flatten(0, -2).float()

    def __exit__(self, *_: object) -> None:
        self._block.close()


@torch.no_grad()
def move_groups(
    strategy: Strategy, centroids: Centroids, vectors: RoutingVectors, focus: FocusModel, step: int
) -> None:
    """Move the centroids as a strategy does after a step.

    Args:
        strategy: of the training.
        centroids: moved in place.
        vectors: of the latest pass.
        focus: with the assignments of that pass.
        step: counted from 0.
    """
    reclusters = strategy.recluster_every is not None and (step + 1) % strategy.recluster_every == 0
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        layer_vectors = vectors.latest[index]
        if strategy.ema_decay is not None:
            chosen = assignment.probabilities.argmax(dim=-1).flatten()
            router.centroids.copy_(moved_centroids(router.centroids, layer_vectors, chosen, strategy.ema_decay))
        if reclusters:
            generator = torch.Generator().manual_seed(step * 10_007 + index)
            router.centroids.copy_(clustered(layer_vectors, router.centroids.shape[0], generator))


def dead_groups(focus: FocusModel) -> float:
    """Groups that are no token's most probable one in the latest pass, mean over layers."""
    counts = []
    for assignment in focus.assignments().values():
        alive = torch.unique(assignment.probabilities.argmax(dim=-1)).numel()
        counts.append(assignment.probabilities.shape[-1] - alive)
    return float(np.mean(counts))


def measure_dominance(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    config: FocusConfig,
    settings: TrainConfig,
    strategies: Sequence[str | Strategy] = tuple(STRATEGIES),
    *,
    weights: bool = False,
    router_rate: float | None = None,
    probe: Tensor | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Train with every strategy on the same sequences from the same routers, and record how the groups fare.

    Args:
        model: causal language model; it stays as it is.
        tokenizer: the model's.
        texts: trained on.
        config: its `normalisation` is replaced by the strategy's; retained pairs count at its `top_k`.
        settings: of every training.
        strategies: names from `STRATEGIES`, or further ones.
        weights: train the model's weights too, at the settings' rate (each strategy on a copy); with frozen weights
            hidden states can drift only through the routers themselves.
        router_rate: the routers' peak learning rate; the settings' when None.
        probe: (B, T) token ids whose groups are compared before and after the last tenth of the steps; None for not.
        on_row: called with every row as it comes.
        should_stop: checked between steps.

    Returns:
        One row per strategy and step: strategy, step, loss (the language model's, nats per token), auxiliary (what the
        strategy added to it), dominance and dominance_max (share of the largest argmax group, mean over layers and
        largest; 1/K is balance), dead_groups (mean over layers), retained_pairs, learning_rate, tokens_per_second, and
        stability: the share of the probe's tokens that kept their group over the last tenth of the steps, mean over
        layers; nan but in the last row. The paper does not define its stability: this is our reading.

    Raises:
        ConfigError: an unknown strategy, or several processes. TextError: too little text. TrainingError: the loss is
        no number. TrainingStopped: stopped by the user; `on_row` has the rows so far.
    """
    chosen = [_strategy(strategy) for strategy in strategies]
    if PartialState().num_processes > 1:
        raise ConfigError("the study of group dominance runs in one process", fix="start it without a launcher")
    check_positions(model, settings.seq_len)
    ids = encode_texts(tokenizer, texts, settings.seq_len + 1, settings.special_tokens)
    rows: list[dict[str, Any]] = []
    for strategy in chosen:
        network = copy.deepcopy(model).float() if weights else model
        run = _Run(network, strategy, config.replace(normalisation=strategy.normalisation), settings, probe)

        def keep(row: dict[str, Any]) -> None:
            rows.append(row)
            if on_row is not None:
                on_row(row)

        run(ids, keep, weights=weights, router_rate=router_rate, should_stop=should_stop)
    return rows


def _strategy(strategy: str | Strategy) -> Strategy:
    if isinstance(strategy, Strategy):
        return strategy
    if strategy not in STRATEGIES:
        raise ConfigError(f"strategy {strategy!r} is unknown", expected="one of " + ", ".join(STRATEGIES))
    return STRATEGIES[strategy]


@dataclass(eq=False)
class _Run:
    """The training of one strategy."""

    network: Any
    strategy: Strategy
    config: FocusConfig
    settings: TrainConfig
    probe: Tensor | None = None
    added: float = 0.0
    dead: float = 0.0
    groups: dict[int, Tensor] = field(default_factory=dict)  # of the probe, by layer
    stability: float = math.nan

    def __call__(
        self,
        ids: TokenStream,
        keep: Callable[[dict[str, Any]], None],
        *,
        weights: bool,
        router_rate: float | None,
        should_stop: Callable[[], bool],
    ) -> None:
        strategy, settings = self.strategy, self.settings
        centroids = random_centroids(self.network, self.config, seed=settings.seed, name=strategy.name)
        watching = RoutingVectors(centroids, strategy.stop_gradient)
        with training_focus(self.network, centroids, weights=weights) as focus, watching as vectors:

            def finish(step: int) -> None:
                self.dead = dead_groups(focus)
                move_groups(strategy, centroids, vectors, focus, step)
                self._compare_groups(focus, step)

            def report(step: TrainStep) -> None:
                keep(self._row(step))
                self.added = 0.0

            loop = centroid_loop(
                focus,
                centroids,
                ids,
                settings,
                phase=strategy.name,
                extra_loss=self._extra,
                after_step=finish,
                weights=list(self.network.parameters()) if weights else (),
                router_rate=router_rate,
                learn_centroids=strategy.ema_decay is None,
            )
            with checkpointing(self.network, settings.gradient_checkpointing):
                loop.run(report, should_stop)

    @torch.no_grad()
    def _compare_groups(self, focus: FocusModel, step: int) -> None:
        """Read the probe's groups a tenth before the end, and compare them with those at the end."""
        steps = self.settings.steps
        if self.probe is None or step + 1 not in (steps - max(1, steps // 10), steps):
            return
        final_hidden(self.network, self.probe)
        groups = {index: one.probabilities.argmax(dim=-1) for index, one in focus.assignments().items()}
        if step + 1 == steps and self.groups:
            kept = [(groups[index] == before).float().mean().item() for index, before in self.groups.items()]
            self.stability = float(np.mean(kept))
        self.groups = groups

    def _extra(self, focus: FocusModel) -> Tensor:
        parts = []
        for assignment in focus.assignments().values():
            g = assignment.probabilities.float()
            parts.append(self.strategy.entropy * entropy_loss(g) + self.strategy.balance * balance_loss(g))
        loss = torch.stack(parts).mean()
        self.added += loss.item() / self.settings.accumulation
        return loss

    def _row(self, step: TrainStep) -> dict[str, Any]:
        return {
            "strategy": self.strategy.name,
            "step": step.step,
            "loss": step.loss - self.added,
            "auxiliary": self.added,
            "dominance": step.dominance,
            "dominance_max": step.dominance_max,
            "dead_groups": self.dead,
            "retained_pairs": step.retained_pairs,
            "learning_rate": step.learning_rate,
            "tokens_per_second": step.tokens_per_second,
            "stability": self.stability,
        }
