"""Centroid training on a frozen model: only routers get gradients, or factors of logits for trained routers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingError
from focus_runtime.fit.calibrate import balanced, calibrate_composed, calibrate_potentials, evaluation_mode
from focus_runtime.fit.inputs import ModelHashes, Texts, encode_domains, texts_identity
from focus_runtime.fit.loop import Loop, Shares, checkpointing, gradients_of
from focus_runtime.fit.objective import StepLoss, training_loss
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.fit.validation import Evaluation, Validation, ValidationPlan, average, evaluate_domains
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import check_positions, dominance
from focus_runtime.models.devices import input_device
from focus_runtime.models.loading import weights_sha256
from focus_runtime.models.structure import head_counts
from focus_runtime.routing.centroids import Centroids, continued_centroids, random_centroids
from focus_runtime.text.sequences import Mixture, TokenStream, even_sequences, recorded_special_tokens

SMALLEST_FACTOR = 0.01  # of the logits: below 0 it would turn attention round
STEP_RATE = 0.1  # of the potentials in steps at the settings of inference; a step sees few tokens
ROWS_COUNTED = 1024  # query rows of which a step counts the kept pairs


def train_centroids(
    model: Any,
    tokenizer: Any,
    texts: Texts,
    config: FocusConfig,
    settings: TrainConfig,
    *,
    inference: FocusConfig | None = None,
    initial: Centroids | None = None,
    validation: ValidationPlan | None = None,
    model_id: str = "",
    on_step: Callable[[TrainStep], None] | None = None,
    on_evaluation: Callable[[Evaluation], None] = lambda evaluation: None,
    checkpoint: Path | None = None,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    history: list[TrainStep] | None = None,
    on_snapshot: Callable[[int, Centroids], None] | None = None,
    snapshot_every: int = 0,
    hashes: ModelHashes | None = None,
) -> Centroids:
    """Train routers of a frozen model and estimate their column potentials, or train factors of logits for them.

    Args:
        model: its weights are not changed (checked by hash).
        config: K, d_g, window, sinks, gate, layers; top_k matters only with `settings.hard`.
        inference: `config` as the result is to be used, which may have another window; it applies in evaluations and in
            `settings.hard_steps`, and every step counts its retained pairs at it. None: `config`.
        initial: trained centroids to start from, of the same groups, routing size and layers. None: random ones.
            While factors are learned, groups and potentials stay as they are.
        checkpoint: file in which every `settings.checkpoint_every` steps, and the last one on Ctrl-C, are kept.
        resume: continue from it, with the losses of a training that was never interrupted.
        should_stop: called after every step; True stops the training (TrainingStopped).
        history: receives every step's report, those before a resume included.
        on_snapshot: called with the step and the centroids at that step, after every `snapshot_every` steps but the
            last one; to be saved at once, since later steps change them. Their potentials are the running averages of
            training; those of the result are estimated at the end.
        hashes: of the model before training. None: they are computed.
    """
    ids = encode_domains(tokenizer, texts, settings.seq_len + 1, settings.special_tokens)
    check_positions(model, settings.seq_len)
    factors = settings.learn == "factors"
    if factors:
        config = config.replace(logit_factors=True)
        inference = (inference or config).replace(logit_factors=True)
    centroids = _first_centroids(model, config, initial, settings)
    hashes = hashes or ModelHashes.of(model)
    centroids.base_model, centroids.base_fingerprint = model_id, hashes.fingerprint
    identity = {"config": config.to_json(), "model": hashes.fingerprint, **texts_identity(texts)}
    if inference is not None and (factors or settings.hard_steps or validation is not None):
        identity["inference"] = inference.to_json()
    if initial is not None:
        identity["initial"] = initial.sha256
    recorded = _recorded_settings(settings, ids)

    def report(step: TrainStep) -> None:
        if on_step is not None:
            on_step(step)
        last = step.step == settings.steps
        if on_snapshot is not None and snapshot_every > 0 and not last and step.step % snapshot_every == 0:
            training = {**recorded, "steps": step.step, "planned_steps": settings.steps, **_final_step(step)}
            on_snapshot(step.step, replace(centroids, training=training))

    with training_focus(model, centroids) as focus:
        calibration = calibration_sequences(model, ids, settings)
        evaluations = None
        if validation is not None:
            scored = (focus, centroids, calibration, validation.sequences, inference or config)
            evaluations = Validation(validation, lambda step: evaluate_training(*scored, step), on_evaluation)
        kept: dict[str, Any] = {"identity": identity, "checkpoint": checkpoint, "validation": evaluations}
        loop = centroid_loop(focus, centroids, ids, settings, inference=inference, **kept)
        if resume:
            loop.resume()
        with checkpointing(model, settings.gradient_checkpointing):
            loop.run(report, should_stop)
        if evaluations is not None and evaluations.plan.patience:
            evaluations.restore_best(loop.values)
    if history is not None:
        history.extend(loop.history)
    if weights_sha256(model) != hashes.weights:
        raise TrainingError("training changed the base model's weights", fix="report this; the result was not kept")
    if not factors:
        calibrate_potentials(model, centroids, calibration)
    seconds = loop.seconds
    centroids.training = _summary(loop, settings, config, initial) | {"base_weights_sha256": hashes.weights}
    if seconds is not None:
        centroids.training["seconds"] = round(seconds, 1)
    return centroids


def _first_centroids(model: Any, config: FocusConfig, initial: Centroids | None, settings: TrainConfig) -> Centroids:
    """Random centroids, or those of `initial` at `config`; with factors of 1 where factors are learned."""
    factors = settings.learn == "factors"
    if initial is None:
        if factors:
            raise ConfigError("factors of logits are learned for trained groups", fix="give centroids to start from")
        return random_centroids(model, config, seed=settings.seed, name="trained")
    centroids = continued_centroids(model, initial, config)
    for router in centroids.routers.values():
        if factors and router.logit_factors is None:
            ones = torch.ones(head_counts(model).query, device=router.projection.device)
            router.logit_factors = nn.Parameter(ones)
    return centroids


def calibration_sequences(model: Any, ids: TokenStream | Mixture, settings: TrainConfig) -> Tensor:
    """(N, T) token ids of the training text on which potentials are estimated, on the model's device."""
    return even_sequences(ids, settings.calibration_sequences, settings.seq_len).to(input_device(model))


@torch.no_grad()
def evaluate_training(
    focus: FocusModel,
    centroids: Centroids,
    calibration: Tensor,
    sequences: Mapping[str, Tensor],
    inference: FocusConfig,
    step: int,
) -> Evaluation:
    """Score the centroids of a training as their file would be used if it ended there; the training stays as it is.

    `calibration`: (N, T) token ids on which the potentials of a copy are estimated; `sequences`: held out, by domain.
    """
    copied = replace(centroids, routers=copy.deepcopy(centroids.routers))
    with focus.with_routers(copied.routers):
        calibrate_composed(focus, copied, calibration)
        with focus.with_config(inference):
            return evaluate_domains(focus, sequences, step)


@contextmanager
def training_focus(model: Any, centroids: Centroids, *, weights: bool = False) -> Iterator[FocusModel]:
    """Focus composed for training, with Sinkhorn or softmax assignment, without dropout; it is all undone at the end.

    `weights`: the model's own weights get gradients too.
    """
    with gradients_of(model, weights), evaluation_mode(model):
        try:
            with compose(model, centroids, assignment="sinkhorn") as focus:
                yield focus
        finally:
            for router in centroids.routers.values():
                router.requires_grad_(False)


def centroid_loop(
    focus: FocusModel,
    centroids: Centroids,
    ids: TokenStream | Mixture,
    settings: TrainConfig,
    *,
    identity: dict[str, Any] | None = None,
    checkpoint: Path | None = None,
    extra_loss: Callable[[FocusModel], Tensor] | None = None,
    phase: str = "centroids",
    weights: Sequence[nn.Parameter] = (),
    router_rate: float | None = None,
    learn_centroids: bool = True,
    after_step: Callable[[int], None] = lambda step: None,
    inference: FocusConfig | None = None,
    validation: Validation | None = None,
) -> Loop:
    """The loop that trains the routers of a composed model, and its own weights if they are given.

    Args:
        extra_loss: added to what is minimised, from the routers' assignments in this pass.
        weights: parameters of the model that are trained along, at the settings' learning rate.
        router_rate: the routers' peak learning rate. None: the settings'.
        learn_centroids: False where `after_step`, called once potentials are updated, moves the centroids, so that
            gradients move only the projections.
        inference: settings of later use, for `settings.hard_steps`, and at which the pairs of every step are counted.
            None: the centroids' own.
    """
    if weights and settings.loss != "lm":
        raise ConfigError(f"loss is {settings.loss!r}", expected="'lm' where the model's own weights are trained")
    routers = {index: centroids.routers[index] for index in sorted(centroids.routers)}
    learned: list[nn.Parameter] = []
    for router in routers.values():
        if settings.learn == "factors":
            assert router.logit_factors is not None, "the centroids of such a training have some"
            own = [router.logit_factors]
        else:
            router.centroids.requires_grad_(False)
            own = [router.projection, router.centroids] if learn_centroids else [router.projection]
        for parameter in own:
            parameter.requires_grad_(True)
        learned += own
    state = {f"potential.{index}": router.potential for index, router in routers.items()}
    if not learn_centroids:
        state |= {f"centroids.{index}": router.centroids for index, router in routers.items()}
    rates = None
    if router_rate is not None:
        rates = [settings.learning_rate] * len(weights) + [router_rate] * len(learned)
    steps = RouterSteps(focus, centroids, ids, settings, inference or centroids.config, extra_loss, after_step)
    return Loop(
        ids,
        settings,
        [*weights, *learned],
        steps.loss,
        after_step=steps.finish,
        state=state,
        identity=identity or {},
        checkpoint=checkpoint,
        around_step=steps.attention,
        phase=phase,
        rates=rates,
        validation=validation,
    )


@dataclass(frozen=True, slots=True)
class RouterSteps:
    """How a composed model attends in every step of a training, and what follows the step; steps count from 0.

    The soft gate, and for the last `settings.hard_steps`, or where factors of logits are learned, the settings of later
    use (`inference`).
    """

    focus: FocusModel
    centroids: Centroids
    ids: TokenStream | Mixture
    settings: TrainConfig
    inference: FocusConfig
    extra_loss: Callable[[FocusModel], Tensor] | None = None
    after_step: Callable[[int], None] = field(default=lambda step: None)

    def __post_init__(self) -> None:
        if self.settings.hard_steps and self.focus.config.gate != "log":
            raise ConfigError(
                f"hard_steps goes with the log gate, not with gate {self.focus.config.gate!r}",
                fix="choose the log gate, or no steps on the hard mask",
            )

    @property
    def learns_factors(self) -> bool:
        return self.settings.learn == "factors"

    def is_hard(self, step: int) -> bool:
        return step >= self.settings.steps - self.settings.hard_steps

    def config(self, step: int) -> AbstractContextManager[Any]:
        """The window, sinks, top-k and assignment of a step."""
        as_later = self.is_hard(step) or self.learns_factors
        return self.focus.with_config(self.inference) if as_later else nullcontext()

    @contextmanager
    def attention(self, step: int) -> Iterator[None]:
        """Config and gate of a step's forward and backward passes."""
        settings = self.settings
        with self.config(step):
            if self.learns_factors:
                yield
                return
            hard = settings.hard or self.is_hard(step)
            with self.focus.entered(SoftGate(self.focus.config.gate, settings.steepness_at(step), hard)):
                yield

    def loss(self, batch: Tensor) -> StepLoss:
        """What is minimised on (B, T) token ids."""
        made = training_loss(self.focus, batch, loss=self.settings.loss, distil_weight=self.settings.distil_weight)
        if self.extra_loss is None:
            return made
        return replace(made, objective=made.objective + self.extra_loss(self.focus))

    def finish(self, step: int) -> Shares:
        """Measure the groups of a step, and update their potentials or clamp the factors."""
        with self.config(step):
            shares = group_shares(self.focus, self.inference)
            if not self.learns_factors:
                self._update_potentials(step)
        if self.learns_factors:
            for router in self.centroids.routers.values():
                assert router.logit_factors is not None
                router.logit_factors.data.clamp_(min=SMALLEST_FACTOR)
        starts_hard = self.settings.hard_steps > 0 and self.is_hard(step + 1) and not self.is_hard(step)
        if starts_hard:  # the next step's mask is the one inference would use now
            sequences = calibration_sequences(self.focus.model, self.ids, self.settings)
            calibrate_composed(self.focus, self.centroids, sequences)
        self.after_step(step)
        return shares

    @torch.no_grad()
    def _update_potentials(self, step: int) -> None:
        """Update the potentials after a pass, in place: the running average of Sinkhorn's column terms.

        Causal assignment uses the potentials, so it moves them towards equally many tokens in every group. The first
        step replaces the average, of which the settings' `potential_decay` is the factor later.
        """
        decay = self.settings.potential_decay
        for index, assignment in self.focus.assignments().items():
            router = self.centroids.routers[index]
            if self.focus.config.assignment == "causal":
                top = assignment.probabilities.argmax(dim=-1).flatten()
                share = average(torch.bincount(top, minlength=router.potential.numel()) / top.numel())
                router.potential.copy_(balanced(router.potential, share, STEP_RATE))
            else:
                mean = average(assignment.potential.detach().float().mean(dim=0))
                router.potential.copy_(mean if step == 0 else decay * router.potential + (1 - decay) * mean)
            router.has_potential = True


@torch.no_grad()
def group_shares(focus: FocusModel, inference: FocusConfig) -> Shares:
    """Dominance, mean and largest over layers, and the pairs that the mask of later use keeps with a pass's groups."""
    masks = focus.head_masks(inference)
    shares, kept = [], []
    for index, assignment in focus.assignments().items():
        shares.append(dominance(assignment.probabilities))
        by_head = [retained_pairs(mask.membership[0], mask.rule) for mask in masks[index]]
        kept.append(np.average(by_head, weights=[len(mask.group.heads) for mask in masks[index]]))
    return float(np.mean(shares)), max(shares), float(np.mean(kept))


def retained_pairs(membership: Tensor, rule: PairRule) -> float:
    """Share of causal pairs that the hard mask keeps for (T,) memberships, from evenly spaced rows of a longer text."""
    length = membership.shape[0]
    count = min(length, ROWS_COUNTED)
    position = torch.arange(length, device=membership.device)
    rows = position if count == length else torch.linspace(0, length - 1, count, device=membership.device).long()
    allowed = allowed_pairs(membership[rows], membership, rows, position, rule)
    return allowed.sum().item() / (rows + 1).sum().item()


def _summary(loop: Loop, settings: TrainConfig, config: FocusConfig, initial: Centroids | None) -> dict[str, Any]:
    """What a centroid file records of its training: of the step whose centroids it holds."""
    validation, kept = loop.validation, loop.done
    if validation is not None and validation.plan.patience and validation.best is not None:
        kept = validation.best.step
    last = loop.history[min(kept, len(loop.history)) - 1] if loop.history else None  # older checkpoints hold none
    sequences = kept * settings.batch * settings.accumulation * loop.processes.num_processes
    summary: dict[str, Any] = {
        **_recorded_settings(settings, loop.ids),
        "steps": kept,
        "planned_steps": settings.steps,
        "stopped": loop.stop_reason,
        **_final_step(last),
        "tokens_seen": sequences * settings.seq_len,
        "training_tokens": loop.ids.numel(),
    }
    if isinstance(loop.ids, Mixture):
        parts = zip(loop.ids.names, loop.ids.weights, loop.ids.streams, strict=True)
        summary["domains"] = [{"name": n, "weight": w, "tokens": stream.numel()} for n, w, stream in parts]
    if validation is not None:
        summary["evaluations"] = [asdict(one) | {"mean": one.mean} for one in validation.history]
        summary["validation_every"], summary["patience"] = validation.plan.every, validation.plan.patience
    if initial is not None:
        summary["initial"] = {"name": initial.name, "sha256": initial.sha256}
        if settings.learn == "factors":
            summary |= _of_groups(initial, keeps_budget=config.budget == initial.config.budget)
    return summary


def _recorded_settings(settings: TrainConfig, texts: TokenStream | Mixture) -> dict[str, Any]:
    """The settings of a training; of special tokens only if the tokenizer adds some."""
    return {n: v for n, v in asdict(settings).items() if n != "special_tokens"} | recorded_special_tokens(texts)


def _of_groups(initial: Centroids, *, keeps_budget: bool) -> dict[str, Any]:
    """What a file with factors records of its groups, which another training made: that training and its budgets."""
    record = dict(initial.training)
    searched = record.pop("budget", None)
    kept = {"balanced": record.pop("balanced")} if "balanced" in record else {}
    kept["groups_training"] = record.get("groups_training", record)
    if keeps_budget and isinstance(searched, dict):
        kept["budget"] = searched | {"before_factors": True}  # the same groups and budget, but other logits
    return kept


def _final_step(step: TrainStep | None) -> dict[str, float | None]:
    """What a file records of the step whose centroids it holds; parts that were not measured are left out."""
    if step is None:
        return {"final_loss": None, "final_dominance": None}
    parts = {"final_loss": step.loss, "final_divergence": step.divergence, "final_layer_error": step.layer_error}
    measured: dict[str, float | None] = {name: value for name, value in parts.items() if not math.isnan(value)}
    return measured | {"final_dominance": step.dominance}
