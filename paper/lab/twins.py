"""Weights trained twice, with Focus and with full attention, on the same sequences in the same order; small models.

Below the scale of the paper small models of an attention kind stand in for those of the paper: they show that a method
reaches the architecture, and learn from the texts at hand.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from focus_runtime.files import replacing
from focus_runtime.fit.inputs import texts_sha256
from focus_runtime.fit.regimes import RegimePlan, RegimeResult, run_regime
from focus_runtime.measure.perplexity import Scores
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells
from paper.output.report import Claim, Row
from paper.reported import REPORTED
from paper.verdicts import judge

GROUPS = 4  # as in the paper
FULL, FOCUS = "full attention", "Focus, k = 2"
SCRATCH_RATE = 1e-3
WIDTH = 128
STAND_INS: dict[str, tuple[str, dict[str, Any]]] = {  # attention kind -> architecture and what makes it that kind
    "MHA": ("GPT2", {}),
    "GQA": ("Mistral", {"num_key_value_heads": 2, "sliding_window": None}),
    "GQA + bias": ("Qwen2", {"num_key_value_heads": 2}),
    "MHA + QK-norm": ("Olmo2", {}),
    "interleaved + softcap": (
        "Gemma2",
        {"num_key_value_heads": 2, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 50.0},
    ),
}
SHAPE = {"hidden_size": WIDTH, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}


def stand_in(kind: str, vocabulary: int, length: int) -> Any:
    """A small model of one attention kind, randomly initialised, for sequences of `length` tokens."""
    family, special = STAND_INS[kind]
    values: dict[str, Any] = {
        **SHAPE,
        "vocab_size": vocabulary,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    if family == "GPT2":
        values |= {"n_inner": values.pop("intermediate_size"), "n_positions": 2 * length}
        values |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    else:
        values |= {"num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 2 * length, **special}
        values["tie_word_embeddings"] = True
    if family == "Gemma2":
        values |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": length}
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, family + "Config")(**values)).eval()


def pretrained(lab: Lab, kind: str) -> Any:
    """A stand-in trained from scratch with full attention on the training texts, or read from an earlier run."""
    steps = lab.scale.scratch_steps
    model = stand_in(kind, len(lab.tokenizer), lab.scale.seq_len).to(lab.device)
    file = lab.folder / "stand-ins" / f"{lab.key('stand-in', kind, steps, lab.scale.seq_len, SHAPE)}.pt"
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        lab.log(f"{kind}: pretrained stand-in kept from before")
        return model.to(lab.full_dtype)
    lab.adapt(f"pretraining {kind}", model, list(model.parameters()), SCRATCH_RATE, steps=steps)
    with replacing(file, explain=None) as part:
        torch.save(model.state_dict(), part)
    return model


@dataclass(frozen=True, slots=True)
class TwinPlan:
    """What twins are trained from.

    Attributes:
        model: network, or its architecture for a training from scratch; `identity`: by which a kept result is found.
        regime: "two_phase" or "from_scratch".
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


def two_phase(lab: Lab, name: str, **more: Any) -> TwinPlan:
    """All weights of the pretrained model trained after its centroids."""
    scale = lab.scale
    return TwinPlan(name, lab.model, lab.model_name, "two_phase", scale.weight_steps, scale.weight_rate, **more)


def from_scratch(lab: Lab, steps: int) -> TwinPlan:
    """A small model of the llama family's kind, trained from random initialisation."""
    model = stand_in("GQA", len(lab.tokenizer), lab.scale.seq_len).to(lab.device)
    values = REPORTED["fine_tuned"][-1]
    name = "from scratch, small Llama-style model"
    return TwinPlan(name, model, f"{SHAPE}", "from_scratch", steps, SCRATCH_RATE, reported=values)


def twins(lab: Lab, plan: TwinPlan, seed: int) -> tuple[list[Row], dict[str, list[float]]]:
    """Train and score both, or find them on disk; full attention is the same under every recipe, and kept apart.

    Returns:
        The rows: full attention, then Focus at k = 2 and at k = 1 under the hard mask; and the loss of every step of
        the weights' phase, by attention: "full" and "focus".
    """
    full = _kept(lab, plan, seed, FULL, lambda: _full_attention(lab, plan, seed))
    config = lab.config(num_groups=GROUPS).to_json()
    depends = {"centroid_steps": lab.scale.steps, "config": config, "steepness": lab.recipe.steepness}
    focus = _kept(lab, plan, seed, "Focus", lambda: _focus(lab, plan, seed, full["scores"]), **depends)
    return [*full["rows"], *focus["rows"]], {"full": full["curve"], "focus": focus["curve"]}


def _kept(lab: Lab, plan: TwinPlan, seed: int, attention: str, measure: Callable[[], Row], **depends: Any) -> Row:
    depends |= {"model": plan.identity, "regime": plan.regime, "steps": plan.steps, "rate": plan.rate}
    depends["texts"] = texts_sha256(plan.texts or lab.texts)
    return lab.kept(f"{plan.name}, {attention}, seed {seed}", measure, **depends)


def _full_attention(lab: Lab, plan: TwinPlan, seed: int) -> Row:
    result, curve = _trained(lab, plan, seed, FULL)
    scores = result.score(_sequences(lab, plan))
    cells = {"attention": FULL, "ppl": scores.perplexity, "retained": 1.0, "paper_full": plan.reported.get("full")}
    return {"rows": [{"method": plan.name, "seed": seed, "loss": curve[-1], **cells}], "curve": curve, "scores": scores}


def _focus(lab: Lab, plan: TwinPlan, seed: int, full: Scores) -> Row:
    result, curve = _trained(lab, plan, seed, "Focus")
    same = {"method": plan.name, "seed": seed, "loss": curve[-1], "paper_focus": plan.reported.get("focus")}
    rows = []
    for top_k in (2, 1):
        cells = quality_cells(full, result.score(_sequences(lab, plan), top_k=top_k))
        rows.append({**same, "attention": f"Focus, k = {top_k}", **cells})
    lab.log(f"{plan.name} seed {seed}: full {full.perplexity:.3f}, k=2 {rows[0]['ppl'].value:.3f}")
    return {"rows": rows, "curve": curve}


def _trained(lab: Lab, plan: TwinPlan, seed: int, attention: str) -> tuple[RegimeResult, list[float]]:
    scratch = plan.regime == "from_scratch"
    precision = "no" if scratch else lab.precision
    regime = RegimePlan(
        regime=plan.regime,
        centroids=None if scratch else lab.plan(seed),
        weights=lab.plan(seed, steps=plan.steps, learning_rate=plan.rate, mixed_precision=precision),
    )
    result = run_regime(
        regime,
        plan.model,
        lab.tokenizer,
        plan.texts or lab.texts,
        lab.config(num_groups=GROUPS),
        twin=attention == FULL,
        on_step=lab.steps(f"{plan.name}, {attention}, seed {seed}", plan.steps),
    )
    return result, [step.loss for step in result.phases["weights"]]


def _sequences(lab: Lab, plan: TwinPlan) -> torch.Tensor:
    return lab.sequences() if plan.sequences is None else plan.sequences


def word_frequencies(lab: Lab) -> float:
    """Perplexity of the training text's token frequencies alone (plus one each) on the scored held-out tokens."""
    counts = torch.bincount(lab.train_ids.ids.cpu().flatten(), minlength=len(lab.tokenizer)).double() + 1
    logs = (counts / counts.sum()).log()
    return math.exp(-logs[lab.sequences()[:, 1:].cpu()].mean().item())


def twin_claims(rows: list[Row], frequencies: float) -> list[Claim]:
    """Focus compared with its twin, undecided where the twin is no better than token frequencies."""
    claims = []
    for name in dict.fromkeys(row["method"] for row in rows):
        full = [row["ppl"] for row in rows if row["method"] == name and row["attention"] == FULL]
        gaps = [row["relative"] for row in rows if row["method"] == name and row["attention"] == FOCUS]
        learnt = max(full) < 0.8 * frequencies
        evidence = "k = 2 against the twin, by seed: " + ", ".join(f"{gap.value:+.2%}" for gap in gaps)
        if not learnt:
            evidence += (
                f"; the twins are at {min(full):,.0f} to {max(full):,.0f} where token frequencies alone give "
                f"{frequencies:,.0f}: hardly any context is used yet"
            )
        claims.append(judge("twins", gaps if learnt else None, evidence, training=name))
    return claims
