"""The options of a training: one list for the command line, the page and the process it starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError
from focus_runtime.fit.recipes import RECIPES, in_words, recipe_named
from focus_runtime.text.special import DEFAULT

VAL_EVERY = 50
ROUTING_DIM = 16
OURS = RECIPES["ours"]
GROUPS = OURS.num_groups
OF_RECIPE = {  # option -> field of `Recipe` that gives its default
    "groups": "num_groups",
    "window": "window",
    "sinks": "num_sinks",
    "iterations": "sinkhorn_iterations",
    "temperature": "temperature",
    "assignment": "assignment",
    "gate": "gate",
    "steepness": "steepness",
}


def _option(default: Any, text: str, *, kind: type = int, choices: tuple[str, ...] | None = None) -> Any:
    return field(default=default, metadata={"help": text, "kind": kind, "choices": choices})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Options of `focus-explorer train`; help texts stand in the fields' metadata."""

    text: tuple[str, ...]
    out: str
    val: tuple[str, ...] = ()
    log_to: tuple[str, ...] = ()
    model: str = settings.SETTINGS["model"].default
    name: str = _option("", "name the training is listed under (default: the result's file name)", kind=str)
    recipe: str = _option(
        "ours",
        "settings that are not given: ours, which lost least here under the hard mask, or paper, the published ones",
        kind=str,
        choices=("ours", "paper"),
    )
    init: str | None = _option(
        None, "trained centroids to start from: default, or a centroid file (default: random ones)", kind=str
    )
    learn: str = _option(
        "groups",
        "groups; or factors, one of the logits for each query head, with the groups of --init as they are, at the "
        "settings of use",
        kind=str,
        choices=("groups", "factors"),
    )
    groups: int | None = _option(None, f"K, groups per layer (default: {in_words('num_groups')}, or those of --init)")
    routing_dim: int | None = _option(
        None,
        f"width of the space in which tokens meet their centroids (default: {ROUTING_DIM}, or that of --init)",
    )
    top_k: int = _option(2, "groups per token the file is to be used with")
    window: int = _option(
        OURS.window, "pairs at most this far apart always attend, in heads without a window of their own"
    )
    train_window: int | None = _option(None, "window during training (default: the same as --window)")
    sinks: int = _option(OURS.num_sinks, "first tokens every token may attend to")
    iterations: int = _option(OURS.sinkhorn_iterations, "Sinkhorn iterations, which balance the groups")
    temperature: float = _option(OURS.temperature, "divides the scores; lower is more decided", kind=float)
    normalisation: str = _option(
        "sinkhorn", "what balances the groups in training", kind=str, choices=("sinkhorn", "softmax")
    )
    assignment: str = _option(
        OURS.assignment,
        "how the file is to be used, and held-out text scored",
        kind=str,
        choices=("causal", "sinkhorn"),
    )
    layers: str | None = _option(None, "layers that get groups, such as 0,3,5 (default: every layer)", kind=str)
    budget: str | None = _option(
        None,
        "layers and heads with a top-k or window of their own, or with full attention, also while training: a JSON "
        "file as in docs/centroid-files.md, or none (default: that of --init)",
        kind=str,
    )
    gate: str = _option(OURS.gate, "soft gate in training; paper is equation 2", kind=str, choices=("log", "paper"))
    steepness: float = _option(OURS.steepness, "lambda of equation 2, with the paper gate", kind=float)
    steepness_start: float | None = _option(
        None, "lambda of the first step, from which it grows evenly (default: the same in every step)", kind=float
    )
    hard: bool = _option(False, "train on the hard mask with straight-through gradients", kind=bool)
    loss: str = _option(
        "lm",
        "what is minimised: lm, the loss of the text; distil, the divergence from full attention's predictions, in a "
        "second pass; both, lm + --distil-weight x distil; or layers, what Focus changes in the output of each layer",
        kind=str,
        choices=("lm", "distil", "both", "layers"),
    )
    distil_weight: float = _option(1.0, "of the divergence in --loss both", kind=float)
    hard_steps: int = _option(
        0, "last steps on the hard mask at the settings of use, with straight-through gradients (log gate only)"
    )
    steps: int = _option(300, "optimiser steps")
    seq_len: int = _option(512, "tokens per sequence")
    batch: int = _option(1, "sequences per pass")
    accumulate: int = _option(1, "passes whose gradients make one step")
    lr: float = _option(3e-3, "peak learning rate", kind=float)
    seed: int = _option(0, "of initialisation and data order")
    special_tokens: str = _option(DEFAULT, settings.TEXTS_BEGIN, kind=str, choices=settings.SPECIAL_TOKENS)
    device: str = _option(
        "auto", "cpu, cuda, cuda:N or mps; auto is the first GPU, or one for each process (default: auto)", kind=str
    )
    dtype: str = _option(
        "float32",
        "of the frozen model; auto is the one that the device computes natively",
        kind=str,
        choices=("auto", "float32", "bfloat16"),
    )
    precision: str = _option("no", "mixed precision on top of it", kind=str, choices=("no", "bf16", "fp16"))
    gradient_checkpointing: bool = _option(False, "less memory, more time", kind=bool)
    checkpoint_every: int = _option(50, "steps between checkpoints")
    snapshots: int = _option(0, "steps between files kept on the way, NAME.step-N.safetensors next to --out (0: none)")
    val_sequences: int = _option(24, "held-out sequences that are scored, of each domain")
    val_every: int | None = _option(
        None, f"steps between scores on --val (default: {VAL_EVERY} with --patience, otherwise at the end only)"
    )
    patience: int = _option(
        0, "end after so many scores in a row without a lower mean over the --val domains, and keep the best (0: never)"
    )
    resume: bool = _option(False, "continue where the training with the same --out was stopped", kind=bool)

    @property
    def checkpoint(self) -> Path:
        """Where an unfinished training is kept."""
        return checkpoint_of(self.out)

    def to_arguments(self) -> list[str]:
        """The words after `focus-explorer train` that give the same request."""
        words = ["--text", *self.text, "--out", self.out, "--model", self.model]
        words += ["--val", *self.val] if self.val else []
        words += [word for target in self.log_to for word in ("--log-to", target)]
        usual = recipe_values(self.recipe) | {"groups": None}
        for option in options():
            value = getattr(self, option.name)
            if value is not None and value != usual.get(option.name, option.default):
                words += [flag(option.name)] if value is True else [flag(option.name), str(value)]
        return words


def usual(option: Any) -> str:
    """The default of an option in words; of one that recipes decide, with the paper's where it differs."""
    return in_words(OF_RECIPE[option.name]) if option.name in OF_RECIPE else str(option.default)


def recipe_values(name: str) -> dict[str, Any]:
    """The options that a recipe decides, with its values.

    Raises:
        InputError: there is no such recipe.
    """
    recipe = recipe_named(name)
    return {option: getattr(recipe, setting) for option, setting in OF_RECIPE.items()}


def checkpoint_of(out: str | Path) -> Path:
    """Where the checkpoint of a result is kept: in its folder."""
    return Path(os.path.expanduser(out)).with_suffix(".checkpoint")


def snapshot_of(out: str | Path, step: int) -> Path:
    """Where the centroids after `step` steps are kept: beside the result."""
    result = Path(os.path.expanduser(out))
    return result.with_name(f"{result.stem}.step-{step:06d}.safetensors")


def snapshots_of(out: str | Path) -> dict[int, Path]:
    """The centroids kept beside a result, by step."""
    result = Path(out)
    found = ((re.fullmatch(r"\.step-(\d+)", Path(path.stem).suffix), path) for path in result.parent.glob("*.step-*"))
    steps = {int(match[1]): path for match, path in found if match}
    return {step: path for step, path in steps.items() if path == snapshot_of(result, step)}


def options() -> list[Any]:
    """The dataclass fields that are plain options."""
    return [option for option in fields(TrainRequest) if option.metadata]


def flag(name: str) -> str:
    """Field name -> command-line option."""
    return "--" + name.replace("_", "-")


def parse_layers(text: str | None) -> tuple[int, ...] | None:
    """ "0,3,5" -> (0, 3, 5); None for every layer.

    Raises:
        InputError: not a list of layer numbers.
    """
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--layers is {text!r}", expected="layer numbers such as 0,3,5") from error
