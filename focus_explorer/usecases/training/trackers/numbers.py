"""The numbers of a training by the names under which they are logged, and their units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from focus_explorer.usecases.training.domains import HELD_OUT

UNITS = {  # the last part of a name -> its unit
    "loss": "nats per token",
    "perplexity": "exp of the loss",
    "divergence": "nats per token, KL from the predictions of full attention",
    "layer_error": "squared error over squared output, mean over layers",
    "dominance": "share of tokens in the largest group, 0 to 1, mean over layers",
    "dominance_max": "share of tokens in the largest group, 0 to 1, of the most lopsided layer",
    "retained_pairs": "share of causal pairs kept by the hard mask of later use, 0 to 1, mean over layers",
    "learning_rate": "AdamW's rate in this step",
    "tokens_per_second": "tokens per second, over all processes",
    "scored": "tokens",
}
_OF_STEP = tuple(name for name in UNITS if name != "scored")


def step_numbers(step: Any, group: str) -> dict[str, float]:
    """A `TrainStep` as GROUP/NAME; what was not measured is left out."""
    return _finite({f"{group}/{name}": getattr(step, name) for name in _OF_STEP})


def evaluation_numbers(evaluation: Any) -> dict[str, float]:
    """An `Evaluation` as held_out/NAME, and as held_out/DOMAIN/NAME where domains have names."""
    numbers = {"held_out/loss": evaluation.mean}
    numbers |= {f"held_out/{name}": getattr(evaluation, name) for name in ("dominance", "retained_pairs")}
    numbers["held_out/scored"] = sum(evaluation.scored.values())
    for domain, loss in evaluation.losses.items():
        if domain != HELD_OUT:
            numbers |= {f"held_out/{domain}/loss": loss, f"held_out/{domain}/scored": evaluation.scored[domain]}
    return _finite(numbers)


def result_numbers(results: Mapping[str, Any], group: str = "result") -> dict[str, float]:
    """The numbers of nested results as GROUP/NAME/NAME."""
    numbers: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            numbers |= result_numbers(value, f"{group}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{group}/{name}"] = value
    return _finite(numbers)


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
