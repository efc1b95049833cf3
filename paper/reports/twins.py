"""The same training twice, with Focus and with full attention, on the same sequences in the same order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from focus_runtime.fit.inputs import texts_sha256
from focus_runtime.fit.regimes import RegimePlan, RegimeResult, run_regime
from focus_runtime.measure.perplexity import Scores
from paper.reports import paper
from paper.reports.cells import quality_cells
from paper.reports.lab import Lab
from paper.reports.report import Claim, agreed, decided
from paper.reports.stand_ins import SCRATCH_RATE, SMALL, stand_in

GROUPS = 4  # as in the paper


@dataclass(frozen=True, slots=True)
class Twins:
    """Two trainings on the same sequences, one with full attention and one with Focus.

    Attributes:
        rows: full attention, then Focus at k = 2 and at k = 1 under the hard mask.
        curves: loss of every step of the weights' phase, by attention: "full" and "focus".
    """

    rows: list[dict[str, Any]]
    curves: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class TwinPlan:
    """What twins are trained from.

    Attributes:
        name: of the training in rows and log.
        model: network, or its architecture alone for a training from scratch.
        identity: of the model, for finding a kept result.
        regime: "two_phase" or "from_scratch".
        steps, rate: of the weights.
        texts: training texts; the laboratory's when None.
        sequences: (N, T) held-out sequences; the laboratory's when None.
        reported: the paper's perplexities, "full" and "focus".
    """

    name: str
    model: Any
    identity: str
    regime: str
    steps: int
    rate: float
    texts: list[str] | None = None
    sequences: torch.Tensor | None = None
    reported: dict[str, Any] = field(default_factory=dict)


def two_phase(lab: Lab, name: str, model: Any, identity: str, **more: Any) -> TwinPlan:
    """All weights of a pretrained model trained after its centroids."""
    scale = lab.scale
    return TwinPlan(name, model, identity, "two_phase", scale.weight_steps, scale.weight_rate, **more)


def from_scratch_plan(lab: Lab, steps: int) -> TwinPlan:
    """A small model of the llama family's kind, trained from random initialisation."""
    model = stand_in("GQA", len(lab.tokenizer), lab.scale.seq_len).to(lab.device)
    reported = paper.FINE_TUNED[-1]
    return TwinPlan(
        "from scratch, small Llama-style model",
        model,
        f"{SMALL}",
        "from_scratch",
        steps,
        SCRATCH_RATE,
        reported=reported,
    )


def word_frequencies(train: torch.Tensor, sequences: torch.Tensor, vocabulary: int) -> float:
    """Perplexity of token frequencies alone (plus one each) on the scored tokens of (N, T) sequences.

    Args:
        train: ids whose frequencies are counted, of any shape.
        sequences: (N, T) ids; the first of each is not scored.
        vocabulary: number of tokens.
    """
    counts = torch.bincount(train.cpu().flatten(), minlength=vocabulary).double() + 1
    logs = (counts / counts.sum()).log()
    return math.exp(-logs[sequences[:, 1:].cpu()].mean().item())


def twin_claims(rows: list[dict[str, Any]], frequencies: float) -> list[Claim]:
    """Focus compared with its twin, undecided where the twin is no better than token frequencies."""
    claims = []
    for name in dict.fromkeys(row["method"] for row in rows):
        trained = [row for row in rows if row["method"] == name]
        twins = [row["ppl"] for row in trained if row["attention"] == "full attention"]
        gaps = [row["relative"] for row in trained if row["attention"] == "Focus, k = 2"]
        learnt = max(twins) < 0.8 * frequencies
        evidence = "k = 2 against the twin, by seed: " + ", ".join(f"{gap.value:+.2%}" for gap in gaps)
        if not learnt:
            evidence += (
                f"; the twins are at {min(twins):,.0f} to {max(twins):,.0f} where token frequencies alone give "
                f"{frequencies:,.0f}: hardly any context is used yet"
            )
        claims.append(
            Claim(
                f"{name}: as good as with full attention (30.3 against 31.4; 13.82 against 13.89)",
                agreed(decided(gap, below=0.01) for gap in gaps) if learnt else None,
                evidence,
                "margin: below +1 % by every seed's interval, with twins at most at 0.8 times the perplexity of token "
                "frequencies",
            )
        )
    return claims


def twins(lab: Lab, plan: TwinPlan, seed: int) -> Twins:
    """Train and score both, or find them on disk; full attention is the same under every recipe, and kept apart."""
    full = _kept(lab, plan, seed, "full attention", lambda: _full_attention(lab, plan, seed))
    focus = _kept(
        lab,
        plan,
        seed,
        "Focus",
        lambda: _focus(lab, plan, seed, full["scores"]),
        centroid_steps=lab.scale.steps,
        config=lab.config(num_groups=GROUPS).to_json(),
        steepness=lab.recipe.steepness,
    )
    return Twins([*full["rows"], *focus["rows"]], {"full": full["curve"], "focus": focus["curve"]})


def _kept(
    lab: Lab, plan: TwinPlan, seed: int, attention: str, measure: Callable[[], dict[str, Any]], **depends: Any
) -> dict[str, Any]:
    """One of the two: "rows", "curve", and of full attention the "scores" that Focus is compared with."""
    return lab.kept(
        f"{plan.name}, {attention}, seed {seed}",
        measure,
        model=plan.identity,
        regime=plan.regime,
        steps=plan.steps,
        rate=plan.rate,
        texts=texts_sha256(plan.texts or lab.texts),
        **depends,
    )


def _full_attention(lab: Lab, plan: TwinPlan, seed: int) -> dict[str, Any]:
    result = _trained(lab, plan, seed, twin=True)
    scores = result.score(_sequences(lab, plan))
    curve = [step.loss for step in result.phases["weights"]]
    row = {
        "method": plan.name,
        "attention": "full attention",
        "seed": seed,
        "ppl": scores.perplexity,
        "retained": 1.0,
        "loss": curve[-1],
        "paper_full": plan.reported.get("full"),
    }
    return {"rows": [row], "curve": curve, "scores": scores}


def _focus(lab: Lab, plan: TwinPlan, seed: int, full: Scores) -> dict[str, Any]:
    result = _trained(lab, plan, seed, twin=False)
    curve = [step.loss for step in result.phases["weights"]]
    rows = [
        {
            "method": plan.name,
            "attention": f"Focus, k = {top_k}",
            "seed": seed,
            **quality_cells(full, result.score(_sequences(lab, plan), top_k=top_k)),
            "loss": curve[-1],
            "paper_focus": plan.reported.get("focus"),
        }
        for top_k in (2, 1)
    ]
    lab.log(f"{plan.name} seed {seed}: full {full.perplexity:.3f}, k=2 {rows[0]['ppl'].value:.3f}")
    return {"rows": rows, "curve": curve}


def _trained(lab: Lab, plan: TwinPlan, seed: int, *, twin: bool) -> RegimeResult:
    scratch = plan.regime == "from_scratch"
    precision = "no" if scratch else lab.precision
    regime = RegimePlan(
        regime=plan.regime,
        centroids=None if scratch else lab.plan(seed),
        weights=lab.plan(seed, steps=plan.steps, learning_rate=plan.rate, mixed_precision=precision),
    )
    return run_regime(
        regime,
        plan.model,
        lab.tokenizer,
        plan.texts or lab.texts,
        lab.config(num_groups=GROUPS),
        twin=twin,
        on_step=lab.steps(f"{plan.name}, {'full attention' if twin else 'Focus'}, seed {seed}", plan.steps),
    )


def _sequences(lab: Lab, plan: TwinPlan) -> torch.Tensor:
    return lab.sequences() if plan.sequences is None else plan.sequences
