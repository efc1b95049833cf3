"""Whole settings of a training under one name: the published one, and the one that did best here under the hard mask.

The paper gives K, w, tau and N (its appendix) and equation 2, but no steepness: `steepness` of the paper's recipe is a
choice of ours, and docs/gate-laboratory.md measures others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The settings by which recipes differ, with the meaning that `FocusConfig` and `TrainConfig` give them.

    Attributes:
        num_groups: K.
        window: w, in tokens.
        num_sinks: first tokens that every token may attend to.
        temperature: tau.
        sinkhorn_iterations: N.
        assignment: "sinkhorn" over the whole text, or "causal" by stored potentials.
        gate: "paper" (equation 2) or "log".
        steepness: lambda of equation 2.
    """

    num_groups: int
    window: int
    num_sinks: int
    temperature: float
    sinkhorn_iterations: int
    assignment: str
    gate: str
    steepness: float

    def config(self, **changes: Any) -> FocusConfig:
        """The settings of attention, some of them changed."""
        values = asdict(self)
        del values["steepness"]
        return FocusConfig(**values | {"top_k": 1} | changes)


RECIPES = {
    "paper": Recipe(
        num_groups=8,
        window=128,
        num_sinks=0,
        temperature=0.1,
        sinkhorn_iterations=10,
        assignment="sinkhorn",
        gate="paper",
        steepness=8.0,
    ),
    "ours": Recipe(
        num_groups=4,
        window=128,
        num_sinks=4,
        temperature=0.1,
        sinkhorn_iterations=20,
        assignment="causal",
        gate="log",
        steepness=8.0,
    ),
}


def recipe_named(name: str) -> Recipe:
    """One of `RECIPES`.

    Raises:
        ConfigError: there is no such recipe.
    """
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe {name!r}", expected=" or ".join(RECIPES))
    return RECIPES[name]


def in_words(setting: str) -> str:
    """A setting's value in our recipe, with the paper's where that is another one."""
    ours, paper = (getattr(RECIPES[name], setting) for name in ("ours", "paper"))
    return f"{ours}" if ours == paper else f"{ours}, paper {paper}"
