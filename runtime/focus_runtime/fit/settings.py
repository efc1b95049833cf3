"""What a training is asked for and what each of its steps reports: settings, schedules, the step's values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from focus_runtime.config import SPECIAL_TOKENS
from focus_runtime.errors import ConfigError
from focus_runtime.fit.objective import LOSSES
from focus_runtime.text.special import DEFAULT

LEARNED = ("groups", "factors")
PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How something is trained; what is trained stands in FocusConfig.

    Attributes:
        steps: optimiser steps.
        seq_len: tokens per sequence.
        batch: sequences per pass and process.
        accumulation: passes whose gradients make one step.
        learning_rate: peak of AdamW's rate.
        warmup: steps of linear warm-up; then cosine to a tenth of the peak.
        weight_decay: AdamW's.
        clip: largest norm of a step's gradient.
        steepness: lambda of the paper gate.
        steepness_start: lambda of the first step, from which it grows in a straight line to `steepness` at the last
            one; None for the same in every step.
        hard: train on the hard mask with straight-through gradients (log gate only).
        loss: what is minimised: "lm", the language model's loss; "distil", the divergence from full attention's
            predictions; "both", lm + distil_weight * distil; "layers", what Focus changes in the output of every layer
            on full attention's input. All but "lm" need frozen weights.
        distil_weight: see `loss`.
        learn: "groups", routers; or "factors", of logits, one for each query head of routed layers, under the mask and
            the settings of inference, for groups that are trained.
        hard_steps: the last so many steps run on the hard mask at the settings of inference, with straight-through
            gradients (log gate only).
        potential_decay: factor of the running average of Sinkhorn's column terms.
        calibration_sequences: training sequences on which the final potentials are estimated.
        seed: initialisation and data order.
        special_tokens: "auto" where every sequence begins with what the tokenizer puts before a text, such as BOS, or
            "none".
        mixed_precision: "no", "bf16" or "fp16" (autocast; fp16 with loss scaling, on a GPU).
        gradient_checkpointing: compute layers again in the backward pass rather than keep their activations.
        checkpoint_every: steps between checkpoints, when there is a file for them.
    """

    steps: int = 300
    seq_len: int = 512
    batch: int = 1
    accumulation: int = 1
    learning_rate: float = 3e-3
    warmup: int = 20
    weight_decay: float = 0.0
    clip: float = 1.0
    steepness: float = 8.0
    steepness_start: float | None = None
    hard: bool = False
    loss: str = "lm"
    distil_weight: float = 1.0
    learn: str = "groups"
    hard_steps: int = 0
    potential_decay: float = 0.95
    calibration_sequences: int = 32
    seed: int = 0
    special_tokens: str = field(default=DEFAULT, repr=False)  # checkpoints of 0.2 hold the text of the others
    mixed_precision: str = "no"
    gradient_checkpointing: bool = False
    checkpoint_every: int = 50

    def __post_init__(self) -> None:
        minima = {
            "steps": 1,
            "seq_len": 16,
            "batch": 1,
            "accumulation": 1,
            "warmup": 0,
            "calibration_sequences": 1,
            "checkpoint_every": 1,
            "seed": 0,
            "hard_steps": 0,
        }
        for name, minimum in minima.items():
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} is {getattr(self, name)}", expected=f"at least {minimum}")
        if self.seed >= 1 << 63:
            raise ConfigError(f"seed is {self.seed}", expected="below 2**63, as random numbers take it")
        if not 0 < self.learning_rate < 10:
            raise ConfigError(f"learning_rate is {self.learning_rate}", expected="between 0 and 10")
        if not 0 <= self.weight_decay < 10 or not 0 < self.clip < math.inf:
            raise ConfigError(
                f"weight_decay is {self.weight_decay} and clip {self.clip}",
                expected="a weight decay of at least 0 and a clip above 0",
            )
        for name in ("steepness", "steepness_start"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}", expected="a number of at least 0")
        if self.mixed_precision not in PRECISIONS:
            raise ConfigError(f"mixed_precision is {self.mixed_precision!r}", expected=" or ".join(PRECISIONS))
        if self.special_tokens not in SPECIAL_TOKENS:
            raise ConfigError(f"special_tokens is {self.special_tokens!r}", expected=" or ".join(SPECIAL_TOKENS))
        if self.loss not in LOSSES:
            raise ConfigError(f"loss is {self.loss!r}", expected=" or ".join(LOSSES))
        if self.learn not in LEARNED:
            raise ConfigError(f"learn is {self.learn!r}", expected=" or ".join(LEARNED))
        if self.learn == "factors" and (self.hard or self.hard_steps):
            raise ConfigError(
                "factors of logits are learned under the mask in every step",
                fix="leave out hard and hard_steps, or learn groups",
            )
        if self.loss == "layers" and self.gradient_checkpointing:
            raise ConfigError(
                "gradient_checkpointing goes with a backward pass through the model, which the loss 'layers' has not",
                fix="leave it off",
            )
        if not 0 < self.distil_weight < math.inf:
            raise ConfigError(f"distil_weight is {self.distil_weight}", expected="a number above 0")
        if self.hard_steps >= self.steps:
            raise ConfigError(
                f"hard_steps is {self.hard_steps} of {self.steps} steps",
                expected="fewer than all: they follow steps on the soft gate",
                fix="train more steps, or all of them on the hard mask (hard)",
            )
        if self.hard_steps and self.hard:
            raise ConfigError("hard and hard_steps are both set", expected="one of them: hard is every step")


@dataclass(frozen=True, slots=True)
class TrainStep:
    """What one step reported.

    Attributes:
        step: steps finished, this one included.
        loss: negative log-likelihood in nats per token, mean over the step's sequences; nan where only layers are
            compared.
        dominance: share of tokens whose most probable group is the largest, mean over layers; nan without groups.
        dominance_max: of the most lopsided layer.
        retained_pairs: pairs that the hard mask of later use keeps with this step's groups over causal pairs, mean over
            layers.
        learning_rate: of this step.
        tokens_per_second: over all processes.
        phase: which part of a training in several parts.
        divergence: KL from full attention's predictions in nats per token; nan where it is no part of the loss.
        layer_error: mean over layers of the relative squared error of Focus's output; nan where it is not the loss.
    """

    step: int
    loss: float
    dominance: float
    dominance_max: float
    retained_pairs: float
    learning_rate: float
    tokens_per_second: float
    phase: str = ""
    divergence: float = math.nan
    layer_error: float = math.nan

    @property
    def perplexity(self) -> float:
        """exp of the loss, nan where that is."""
        return self.loss if math.isnan(self.loss) else math.exp(min(self.loss, 700.0))


def rate_at(step: int, config: TrainConfig) -> float:
    """Learning rate of a step counted from 0: linear warm-up, then cosine to a tenth of the peak."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def steepness_at(step: int, config: TrainConfig) -> float:
    """Lambda of the paper gate in a step counted from 0."""
    if config.steepness_start is None:
        return config.steepness
    progress = step / max(1, config.steps - 1)
    return config.steepness_start + progress * (config.steepness - config.steepness_start)
