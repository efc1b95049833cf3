"""Held-out text scored while a training runs, by domain; the best evaluation kept, and an early end noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.errors import ConfigError
from focus_runtime.measure.perplexity import score
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids


def average(value: Tensor) -> Tensor:
    """Mean of a tensor over all processes of a training; the tensor itself when there is one."""
    return value if PartialState().num_processes == 1 else reduce(value, "mean")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationPlan:
    """What is scored during a training, and when the training ends early.

    `patience`: evaluations in a row without a lower mean over the domains after which the training ends, with the best
    evaluation's centroids; 0 never ends it and keeps the last.
    """

    sequences: Mapping[str, Tensor]  # held-out token ids (N, T) by domain
    every: int  # steps between evaluations; the last step is evaluated too
    patience: int = 0

    def __post_init__(self) -> None:
        if not self.sequences:
            raise ConfigError("there is no held-out text to evaluate", expected="at least one domain")
        if self.every < 1:
            raise ConfigError(f"every is {self.every}", expected="at least 1 step between evaluations")
        if self.patience < 0:
            raise ConfigError(f"patience is {self.patience}", expected="a number of evaluations, or 0 for no early end")

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint keeps of the plan."""
        sums = {name: [list(ids.shape), int(ids.sum())] for name, ids in self.sequences.items()}
        return {"every": self.every, "patience": self.patience, "held_out": sums}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Held-out loss after a step, in nats per token by domain, under the hard mask at the settings of inference."""

    step: int
    losses: dict[str, float]
    scored: dict[str, int]
    dominance: float
    retained_pairs: float

    @property
    def mean(self) -> float:
        """Mean loss over the domains, each counted once."""
        return sum(self.losses.values()) / len(self.losses)


def evaluate_domains(focus: FocusModel, sequences: Mapping[str, Tensor], step: int) -> Evaluation:
    """Score (N, T) held-out token ids by domain under the hard mask, at the composition's settings."""
    rows = {name: score(focus, ids) for name, ids in sequences.items()}
    losses = torch.tensor([row.loss for row in rows.values()], dtype=torch.float64)
    losses = average(losses.to(input_device(focus.model)))  # else processes could disagree on the best one
    return Evaluation(
        step,
        dict(zip(rows, losses.tolist(), strict=True)),
        {name: int(row.scored.sum()) for name, row in rows.items()},
        fmean(row.dominance.mean() for row in rows.values()),
        fmean(row.retained_pairs.mean() for row in rows.values()),
    )


def validate(model: Any, centroids: Centroids, sequences: Tensor, *, top_ks: tuple[int, ...]) -> dict[str, Any]:
    """Perplexity of (N, T) held-out token ids under full attention, and for several k under the hard mask, with balance
    and sparsity; `model` is the base model, Focus not composed."""
    full = score(model, sequences)
    report: dict[str, Any] = {
        "full": full.perplexity,
        "scored_tokens": int(full.scored.sum()),
        "sequence_length": sequences.shape[1],
    }
    for top_k in top_ks:
        with compose(model, centroids, top_k=top_k) as focus:
            report[f"k={top_k}"] = score(focus, sequences).summary()
    return report


@dataclass(eq=False)
class Validation:
    """The evaluations of one training, those before a resume included, and the first with the lowest mean.

    `evaluate` scores the training after a number of steps. `report` gets every evaluation once the checkpoint has it.
    """

    plan: ValidationPlan
    evaluate: Callable[[int], Evaluation]
    report: Callable[[Evaluation], None]
    history: list[Evaluation] = field(default_factory=list)
    best: Evaluation | None = None
    _best_values: list[Tensor] = field(default_factory=list)

    def is_due(self, step: int, last: int) -> bool:
        """Whether the training should be evaluated after `step` of `last` steps, and has not been."""
        if step == 0 or (self.history and self.history[-1].step >= step):
            return False
        return step % self.plan.every == 0 or step == last

    def run(self, step: int, values: Sequence[Tensor]) -> Evaluation:
        """Evaluate after a step; `values`, all that the training changes, are kept from the best evaluation so far."""
        made = self.evaluate(step)
        self.history.append(made)
        if self.best is None or made.mean < self.best.mean:
            self.best, self._best_values = made, [value.detach().clone() for value in values]
        return made

    @property
    def has_ended(self) -> bool:
        """Whether the patience is used up."""
        if self.best is None:
            return False
        return 0 < self.plan.patience <= len(self.history) - 1 - self.history.index(self.best)

    @torch.no_grad()
    def restore_best(self, values: Sequence[Tensor]) -> None:
        """Give the training the values of its best evaluation."""
        for value, kept in zip(values, self._best_values, strict=True):
            value.copy_(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        values = [value.cpu() for value in self._best_values]
        return {"history": [asdict(one) for one in self.history], "best_values": values}

    def load(self, state: dict[str, Any], values: Sequence[Tensor]) -> None:
        """Resume from what `state` returned, on the devices of `values`."""
        self.history[:] = [Evaluation(**one) for one in state["history"]]
        self.best = min(self.history, key=lambda one: one.mean, default=None)
        kept = zip(state["best_values"], values, strict=False)  # none before the first evaluation
        self._best_values = [value.to(target.device) for value, target in kept]
