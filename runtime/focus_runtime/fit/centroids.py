"""Centroid training on a frozen model: only routers get gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingError
from focus_runtime.fit import domains
from focus_runtime.fit.calibrate import balanced, calibrate_composed, calibrate_potentials
from focus_runtime.fit.contexts import checkpointing, evaluation_mode
from focus_runtime.fit.domains import TextDomain
from focus_runtime.fit.hashes import ModelHashes
from focus_runtime.fit.loop import Loop, Shares
from focus_runtime.fit.objective import StepLoss, training_loss
from focus_runtime.fit.phases import Phases
from focus_runtime.fit.processes import average
from focus_runtime.fit.record import final_step, recorded_settings, training_summary
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.fit.shares import group_shares
from focus_runtime.fit.validation import Evaluation, Validation, ValidationPlan, evaluate_training
from focus_runtime.measure.loss import (
    check_positions,
    evaluate_focus,
    evaluate_full,
)
from focus_runtime.models.devices import input_device
from focus_runtime.models.loading import weights_sha256
from focus_runtime.models.structure import num_query_heads
from focus_runtime.routing.centroids import Centroids, continued_centroids, random_centroids
from focus_runtime.text.sequences import Mixture, TokenStream, even_sequences

SMALLEST_FACTOR = 0.01  # of the logits: below 0 it would turn attention round
STEP_RATE = 0.1  # of the potentials in steps at the settings of inference; a step sees few tokens


def train_centroids(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str] | Sequence[TextDomain],
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
        model: causal language model; its weights are not changed (checked by hash).
        tokenizer: the model's.
        texts: training texts, joined in order; or domains, from which sequences are drawn by weight.
        config: K, d_g, window, sinks, gate, layers; top_k matters only with `settings.hard`.
        settings: optimisation.
        inference: `config` as the result is to be used, which may have another window; in force in evaluations and in
            `settings.hard_steps`, and in every step what its retained pairs are counted at. The same when None.
        initial: trained centroids to start from, of the same groups, routing size and layers; random ones when None.
            Where factors are learned their groups and potentials stay as they are.
        validation: held-out text scored during the training, which may end it early.
        model_id: recorded in the result.
        on_step: called after every step.
        on_evaluation: called after every evaluation.
        checkpoint: file in which every `settings.checkpoint_every` steps, and the last one on Ctrl-C, are kept.
        resume: continue from that file; the losses are those of a training that was never interrupted.
        should_stop: called after every step; True stops the training.
        history: takes every step's report, those before a resume included.
        on_snapshot: called with the step and the centroids at that step, after every `snapshot_every` steps but the
            last one; to be saved at once, since later steps change them. Their potentials are the running averages of
            training; those of the result are estimated anew at the end.
        snapshot_every: steps between calls of `on_snapshot`; 0 for none.
        hashes: of the model before training, where the caller has them; computed when None.

    Returns:
        Centroids with potentials, ready for `save_centroids`.

    Raises:
        TextError: too little text. CentroidFileError or ConfigError: `initial` does not fit the model or the
        configuration. TrainingError: the checkpoint does not fit, cannot be written, or the loss is no
        number. TrainingStopped: stopped by the user.
    """
    ids = domains.encode(tokenizer, texts, settings.seq_len + 1, settings.special_tokens)
    check_positions(model, settings.seq_len)
    factors = settings.learn == "factors"
    if factors and initial is None:
        raise ConfigError("factors of logits are learned for trained groups", fix="give centroids to start from")
    if factors:
        config = config.replace(logit_factors=True)
        inference = (inference or config).replace(logit_factors=True)
    centroids = _first_centroids(model, config, initial, settings.seed)
    if factors:
        _give_factors(centroids, num_query_heads(model))
    hashes = hashes or ModelHashes.of(model)
    centroids.base_model, centroids.base_fingerprint = model_id, hashes.fingerprint
    identity = {"config": config.to_json(), "model": hashes.fingerprint, **domains.identity(texts)}
    if inference is not None and (factors or settings.hard_steps or validation is not None):
        identity["inference"] = inference.to_json()
    if initial is not None:
        identity["initial"] = initial.sha256
    if on_snapshot is not None and snapshot_every > 0:
        on_step = _with_snapshots(on_step, on_snapshot, snapshot_every, centroids, recorded_settings(settings, ids))
    with training_focus(model, centroids) as focus:
        loop = centroid_loop(
            focus,
            centroids,
            ids,
            settings,
            identity=identity,
            checkpoint=checkpoint,
            inference=inference,
            validation=_validation(focus, centroids, ids, settings, inference or config, validation, on_evaluation),
        )
        _run(loop, model, settings, on_step, should_stop, resume=resume)
    if history is not None:
        history.extend(loop.history)
    _check_unchanged(model, hashes)
    if not factors:
        calibrate_potentials(model, centroids, calibration_sequences(model, ids, settings))
    seconds = loop.seconds
    centroids.training = training_summary(loop, settings, config, initial)
    centroids.training["base_weights_sha256"] = hashes.weights
    if seconds is not None:
        centroids.training["seconds"] = round(seconds, 1)
    return centroids


def _first_centroids(model: Any, config: FocusConfig, initial: Centroids | None, seed: int) -> Centroids:
    """Random centroids, or those of `initial` with the settings of this training."""
    if initial is None:
        return random_centroids(model, config, seed=seed, name="trained")
    return continued_centroids(model, initial, config)


def _run(
    loop: Loop,
    model: Any,
    settings: TrainConfig,
    on_step: Callable[[TrainStep], None] | None,
    should_stop: Callable[[], bool],
    *,
    resume: bool,
) -> None:
    """Run the loop, from its checkpoint where it resumes; with patience it ends with the best routers."""
    if resume:
        loop.resume()
    with checkpointing(model, settings.gradient_checkpointing):
        loop.run(on_step, should_stop)
    if loop.validation is not None and loop.validation.plan.patience:
        loop.validation.restore_best(loop.values)


def _check_unchanged(model: Any, hashes: ModelHashes) -> None:
    if weights_sha256(model) != hashes.weights:
        raise TrainingError("training changed the base model's weights", fix="report this; the result was not kept")


def _validation(
    focus: FocusModel,
    centroids: Centroids,
    ids: TokenStream | Mixture,
    settings: TrainConfig,
    inference: FocusConfig,
    plan: ValidationPlan | None,
    report: Callable[[Evaluation], None],
) -> Validation | None:
    if plan is None:
        return None
    calibration = calibration_sequences(focus.model, ids, settings)

    def evaluate(step: int) -> Evaluation:
        return evaluate_training(focus, centroids, calibration, plan.sequences, inference, step)

    return Validation(plan, evaluate, report)


def calibration_sequences(model: Any, ids: TokenStream | Mixture, settings: TrainConfig) -> Tensor:
    """(N, T) token ids of the training text on which potentials are estimated, on the model's device."""
    return even_sequences(ids, settings.calibration_sequences, settings.seq_len).to(input_device(model))


def _with_snapshots(
    on_step: Callable[[TrainStep], None] | None,
    on_snapshot: Callable[[int, Centroids], None],
    every: int,
    centroids: Centroids,
    recorded: dict[str, Any],
) -> Callable[[TrainStep], None]:
    """`on_step`, and after every so many steps but the last one `on_snapshot`; its centroids share the routers."""

    def report(step: TrainStep) -> None:
        if on_step is not None:
            on_step(step)
        if step.step < recorded["steps"] and step.step % every == 0:
            training = {**recorded, "steps": step.step, "planned_steps": recorded["steps"], **final_step(step)}
            on_snapshot(step.step, replace(centroids, training=training))

    return report


@contextmanager
def training_focus(model: Any, centroids: Centroids, *, weights: bool = False) -> Iterator[FocusModel]:
    """Focus composed for training, with Sinkhorn or softmax assignment, without dropout; it is all undone at the end.

    Args:
        centroids: whose routers are trained.
        weights: whether the model's own weights get gradients too.
    """
    before = {p: p.requires_grad for p in model.parameters()}
    model.requires_grad_(weights)
    try:
        with evaluation_mode(model):
            focus = compose(model, centroids, assignment="sinkhorn")
            try:
                yield focus
            finally:
                focus.detach()
    finally:
        for router in centroids.routers.values():
            router.requires_grad_(False)
        for parameter, required in before.items():
            parameter.requires_grad_(required)
            if weights:
                parameter.grad = None  # as large as the model, and unused


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
    """The loop that trains the routers of a composed model, and its own weights where they are given.

    Args:
        focus: the composed model.
        centroids: whose routers are trained.
        ids: token stream of the training texts, or those of several domains.
        settings: optimisation.
        identity: what a checkpoint must have been made for.
        checkpoint: where the state is kept; None for nowhere.
        extra_loss: added to the language model's loss, from the routers' assignments in this pass.
        phase: recorded with every step.
        weights: parameters of the model that are trained along, at the settings' learning rate.
        router_rate: the routers' peak learning rate; the settings' when None.
        learn_centroids: False where `after_step` moves the centroids and gradients move the projections alone.
        after_step: called once potentials are updated.
        inference: settings of later use, in force during `settings.hard_steps`, and at which the pairs of every step
            are counted; the centroids' own when None.
        validation: evaluations during the training, which may end it early; None for none.

    Raises:
        ConfigError: distillation while weights are trained, which would change the teacher too.
    """
    if weights and settings.loss != "lm":
        raise ConfigError(f"loss is {settings.loss!r}", expected="'lm' where the model's own weights are trained")
    phases = Phases(focus, settings, inference or centroids.config)
    routers = [centroids.routers[index] for index in sorted(centroids.routers)]
    learned: list[nn.Parameter] = []
    for router in routers:
        if settings.learn == "factors":
            assert router.logit_factors is not None, "the centroids of such a training have some"
            router.logit_factors.requires_grad_(True)
            learned.append(router.logit_factors)
            continue
        router.projection.requires_grad_(True)
        router.centroids.requires_grad_(learn_centroids)
        learned += [router.projection, router.centroids] if learn_centroids else [router.projection]
    state = {f"potential.{i}": centroids.routers[i].potential for i in sorted(centroids.routers)}
    if not learn_centroids:
        state |= {f"centroids.{i}": centroids.routers[i].centroids for i in sorted(centroids.routers)}
    rates = None
    if router_rate is not None:
        rates = [settings.learning_rate] * len(weights) + [router_rate] * len(learned)

    def loss(batch: Tensor) -> Tensor | StepLoss:
        made = training_loss(focus, batch, loss=settings.loss, distil_weight=settings.distil_weight)
        if extra_loss is None:
            return made
        if isinstance(made, StepLoss):
            return replace(made, objective=made.objective + extra_loss(focus))
        return made + extra_loss(focus)

    def finish(step: int) -> Shares:
        with phases.config(step):
            shares = group_shares(focus, phases.inference)
            if settings.learn != "factors":
                update_potentials(focus, centroids, settings.potential_decay, step)
        if settings.learn == "factors":
            for factors in learned:
                factors.data.clamp_(min=SMALLEST_FACTOR)
        if phases.precedes_hard(step):  # the next step's mask is the one inference would use now
            calibrate_composed(focus, centroids, calibration_sequences(focus.model, ids, settings))
        after_step(step)
        return shares

    return Loop(
        ids,
        settings,
        [*weights, *learned],
        loss,
        after_step=finish,
        state=state,
        identity=identity or {},
        checkpoint=checkpoint,
        around_step=phases.attention,
        phase=phase,
        rates=rates,
        validation=validation,
    )


def _give_factors(centroids: Centroids, num_heads: int) -> None:
    """Factors of 1 for the query heads of every layer that has none."""
    for router in centroids.routers.values():
        if router.logit_factors is None:
            router.logit_factors = nn.Parameter(torch.ones(num_heads, device=router.projection.device))


@torch.no_grad()
def update_potentials(focus: FocusModel, centroids: Centroids, decay: float, step: int) -> None:
    """Update the potentials: the running average of Sinkhorn's column terms.

    Under causal assignment, which uses the potentials, they are moved towards equally many tokens in every group.

    Args:
        focus: the composed model, after a pass.
        centroids: whose potentials are updated in place.
        decay: factor of the old average.
        step: steps finished before this one; the first one replaces the average.
    """
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        if focus.config.assignment == "causal":
            top = assignment.probabilities.argmax(dim=-1).flatten()
            share = average(torch.bincount(top, minlength=router.potential.numel()) / top.numel())
            router.potential.copy_(balanced(router.potential, share, STEP_RATE))
        else:
            mean = average(assignment.potential.detach().float().mean(dim=0))
            router.potential.copy_(mean if step == 0 else decay * router.potential + (1 - decay) * mean)
        router.has_potential = True


def validate(
    model: Any, centroids: Centroids, sequences: Tensor, *, top_ks: tuple[int, ...] = (1, 2), window: int | None = None
) -> dict[str, Any]:
    """Held-out perplexity under the hard mask for several k, with balance and sparsity, and of full attention.

    Args:
        model: the base model, Focus not composed.
        centroids: trained and calibrated.
        sequences: (N, T) token ids.
        top_ks: groups per token, one evaluation each.
        window: the centroids' own when None.
    """
    full, scored = evaluate_full(model, sequences)
    report: dict[str, Any] = {"full": full, "scored_tokens": scored, "sequence_length": sequences.shape[1]}
    for top_k in top_ks:
        focus = compose(model, centroids, top_k=top_k, window=window)
        try:
            report[f"k={top_k}"] = asdict(evaluate_focus(focus, sequences))
        finally:
            focus.detach()
    return report
