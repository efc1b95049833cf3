"""What a training is asked for and what its steps report: recipes, settings, schedules. Without torch.

The paper gives K, w, tau and N (its appendix) and equation 2, but no steepness: `steepness` of the paper's recipe is a
choice of ours, and docs/gate-laboratory.md measures others.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from focus_runtime.config import SPECIAL_TOKENS, FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.text.special import DEFAULT

LOSSES = ("lm", "distil", "both", "layers")
LEARNED = ("groups", "factors")
PRECISIONS = ("no", "bf16", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The settings by which recipes differ, named as in `FocusConfig` and `TrainConfig`."""

    num_groups: int
    window: int = 128
    num_sinks: int
    temperature: float = 0.1
    sinkhorn_iterations: int
    assignment: str
    gate: str
    steepness: float = 8.0

    def config(self, **changes: Any) -> FocusConfig:
        """The settings of attention, some of them changed."""
        values = asdict(self)
        del values["steepness"]
        return FocusConfig(**values | {"top_k": 1} | changes)


RECIPES = {
    "paper": Recipe(num_groups=8, num_sinks=0, sinkhorn_iterations=10, assignment="sinkhorn", gate="paper"),
    # lost least here under the hard mask
    "ours": Recipe(num_groups=4, num_sinks=4, sinkhorn_iterations=20, assignment="causal", gate="log"),
}


def recipe_named(name: str) -> Recipe:
    """One of `RECIPES`; any other name is a ConfigError."""
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe {name!r}", expected=" or ".join(RECIPES))
    return RECIPES[name]


def in_words(setting: str) -> str:
    """A setting's value in our recipe, with the paper's if that differs."""
    ours, paper = (getattr(RECIPES[name], setting) for name in ("ours", "paper"))
    return f"{ours}" if ours == paper else f"{ours}, paper {paper}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How something is trained; `FocusConfig` says what.

    Attributes:
        steepness_start: lambda of the first step, from which it grows in a straight line. None: the same in every step.
        loss: what is minimised: "lm", the language model's loss; "distil", the divergence from full attention's
            predictions; "both", lm + distil_weight * distil; "layers", what Focus changes in the output of every layer
            on full attention's input. All but "lm" need frozen weights.
        learn: "groups", routers; or "factors", of logits, one for each query head of routed layers, under the mask and
            the settings of inference, for groups that are trained.
        hard_steps: number of last steps on the hard mask at the settings of inference, with straight-through gradients
            (log gate only).
        special_tokens: "auto" (every sequence begins with what the tokenizer puts before a text) or "none".
    """

    steps: int = 300
    seq_len: int = 512
    batch: int = 1
    accumulation: int = 1
    learning_rate: float = 3e-3  # peak of AdamW's rate, after `warmup` steps; then a cosine to a tenth of it
    warmup: int = 20
    weight_decay: float = 0.0
    clip: float = 1.0
    steepness: float = 8.0
    steepness_start: float | None = None
    hard: bool = False  # train on the hard mask with straight-through gradients (log gate only)
    loss: str = "lm"
    distil_weight: float = 1.0
    learn: str = "groups"
    hard_steps: int = 0
    potential_decay: float = 0.95  # factor of the running average of Sinkhorn's column terms
    calibration_sequences: int = 32  # training sequences on which the final potentials are estimated
    seed: int = 0
    special_tokens: str = field(default=DEFAULT, repr=False)  # checkpoints of 0.2 hold the text of the others
    mixed_precision: str = "no"  # "no", "bf16" or "fp16" (autocast; fp16 with loss scaling, on a GPU)
    gradient_checkpointing: bool = False
    checkpoint_every: int = 50

    def __post_init__(self) -> None:
        at_least = {"seq_len": 16} | dict.fromkeys(("warmup", "seed", "hard_steps"), 0)
        at_least |= dict.fromkeys(("steps", "batch", "accumulation", "calibration_sequences", "checkpoint_every"), 1)
        start = self.steepness if self.steepness_start is None else self.steepness_start
        allowed = {name: (getattr(self, name) >= least, f"at least {least}") for name, least in at_least.items()} | {
            "seed": (0 <= self.seed < 1 << 63, "at least 0 and below 2**63, as random numbers take it"),
            "learning_rate": (0 < self.learning_rate < 10, "between 0 and 10"),
            "weight_decay": (0 <= self.weight_decay < 10, "at least 0 and below 10"),
            "clip": (0 < self.clip < math.inf, "a number above 0"),
            "steepness": (0 <= self.steepness < math.inf, "a number of at least 0"),
            "steepness_start": (0 <= start < math.inf, "a number of at least 0"),
            "distil_weight": (0 < self.distil_weight < math.inf, "a number above 0"),
            "mixed_precision": (self.mixed_precision in PRECISIONS, " or ".join(PRECISIONS)),
            "special_tokens": (self.special_tokens in SPECIAL_TOKENS, " or ".join(SPECIAL_TOKENS)),
            "loss": (self.loss in LOSSES, " or ".join(LOSSES)),
            "learn": (self.learn in LEARNED, " or ".join(LEARNED)),
        }
        for name, (holds, expected) in allowed.items():
            if not holds:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", expected=expected)
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
        if self.hard_steps >= self.steps:
            raise ConfigError(
                f"hard_steps is {self.hard_steps} of {self.steps} steps",
                expected="fewer than all: they follow steps on the soft gate",
                fix="train more steps, or all of them on the hard mask (hard)",
            )
        if self.hard_steps and self.hard:
            raise ConfigError("hard and hard_steps are both set", expected="one of them: hard is every step")

    def rate_at(self, step: int) -> float:
        """Learning rate of a step counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))

    def steepness_at(self, step: int) -> float:
        """Lambda of the paper gate in a step counted from 0."""
        if self.steepness_start is None:
            return self.steepness
        progress = step / max(1, self.steps - 1)
        return self.steepness_start + progress * (self.steepness - self.steepness_start)


@dataclass(frozen=True, slots=True)
class TrainStep:
    """What one step reported; parts that were not measured are nan.

    `retained_pairs`: pairs that the hard mask of later use keeps with this step's groups over causal pairs, mean over
    layers.
    """

    step: int
    loss: float  # negative log-likelihood in nats per token, mean over the step's sequences
    dominance: float  # share of tokens whose most probable group is the largest, mean over layers
    dominance_max: float
    retained_pairs: float
    learning_rate: float
    tokens_per_second: float
    phase: str = ""  # which part of a training in several parts
    divergence: float = math.nan  # KL from full attention's predictions in nats per token
    layer_error: float = math.nan  # mean over layers of the relative squared error of Focus's output

    @property
    def perplexity(self) -> float:
        """exp of the loss, nan where that is."""
        return self.loss if math.isnan(self.loss) else math.exp(min(self.loss, 700.0))
